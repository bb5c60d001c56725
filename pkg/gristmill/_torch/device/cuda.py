"""The calls of CUDA that copying batches needs, by way of torch."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

# Every device of the process may read the memory.
_PORTABLE = 1


class Cuda:
    """One CUDA device.

    Args:
        device: A ``torch.device`` of type cuda; without an index, the current one.
    """

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", index)

    def new_stream(self) -> Any:
        """A stream beside the one that the program computes on."""
        return torch.cuda.Stream(self.device)

    def current_stream(self) -> Any:
        """The stream that the calling thread computes on."""
        return torch.cuda.current_stream(self.device)

    def room_for(self, host: torch.Tensor) -> torch.Tensor:
        """A tensor like `host`, not filled, in memory of the current stream."""
        return torch.empty_like(host, device=self.device)

    def copy(self, room: torch.Tensor, host: torch.Tensor, stream: Any) -> None:
        """Copy in a stream's turn; `host` must stay until the stream is past it."""
        with torch.cuda.stream(stream):
            room.copy_(host, non_blocking=True)

    def used_on(self, room: torch.Tensor, stream: Any) -> None:
        """Keep the memory of a tensor, once dropped, until a stream has used it."""
        room.record_stream(stream)

    def is_pinned(self, host: torch.Tensor) -> bool:
        """Whether the device reads the tensor's memory in place."""
        pinned: bool = host.is_pinned()
        return pinned

    def staged(self, host: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor in pinned memory, which torch keeps for the next."""
        return host.pin_memory()

    def register(self, address: int, nbytes: int) -> bool:
        """Let the device read a range of memory in place; False where it cannot."""
        error = torch.cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE)
        if int(error) == 0:
            return True
        # CUDA remembers the error for whoever asks next, which is the first kernel
        # that torch launches.  Let that one be ours.
        with contextlib.suppress(RuntimeError):
            torch.ones(1, device=self.device)
        return False

    def unregister(self, address: int) -> None:
        """Take `register` back, once nothing is copied from there any more."""
        torch.cuda.cudart().cudaHostUnregister(address)
