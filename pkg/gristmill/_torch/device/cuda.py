"""Copies batches to a CUDA device beside what it computes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from typing import Any

import torch

from gristmill import _core
from gristmill._torch.batches.tensors import as_tensor_leaf, is_plain, map_leaves

# Every device of the process may read the memory.
_PORTABLE = 1


class Cuda:
    """One CUDA device, and the calls of it that copying batches needs.

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


@dataclasses.dataclass(slots=True)
class _Copying:
    """A batch whose values are on their way to `rooms`."""

    batch: Any
    rooms: list[torch.Tensor]
    stream: Any  # The one that the memory of the rooms belongs to.
    copied: Any  # The event after the last copy.


class CudaCopies:
    """Moves batches on a stream of its own.

    Memory on the device comes from torch's allocator, for the stream that is current
    when the copy begins, and the copy waits for what that stream was given before.
    So a batch that the program dropped is free for the next one at once, in stream
    order, as if the program itself had called ``x.to(device)``: after a few batches
    nothing is allocated, however far the program runs ahead of the device, which is
    what memory marked by ``record_stream`` cannot promise.  The host memory of a
    batch, a slot mostly, is held until its copies are done, and at most `depth` + 1
    batches are; then the program waits for the device.

    The device reads slots of shared memory in place.  One is registered when the first
    batch in it is copied, whole, and stays so while others use it after that one.  A
    loader soon uses the same few slots again and again, so registering, which is slow,
    ends after the first batches.  Where CUDA refuses (some containers and virtual
    machines), nothing more is tried.

    Args:
        cuda: The device.
        depth: How many copies may be behind the program.
    """

    def __init__(self, cuda: Cuda, depth: int) -> None:
        self._cuda = cuda
        self._depth = depth
        self._stream = cuda.new_stream()
        # Those that are registered.
        self._slots: list[_core.PinnedSlot] = []
        self._refused = False
        self._flying: collections.deque[tuple[Any, list[torch.Tensor]]]
        self._flying = collections.deque()

    def place(self, batch: Any) -> _Copying:
        """Begin to copy a batch."""
        self._land(self._depth)
        hosts: list[torch.Tensor] = []
        rooms: list[torch.Tensor] = []

        def place_leaf(leaf: Any) -> Any:
            leaf = as_tensor_leaf(leaf)
            if not is_plain(leaf):
                return leaf.to(self._cuda.device) if hasattr(leaf, "to") else leaf
            hosts.append(self._readable(leaf))
            rooms.append(self._cuda.room_for(leaf))
            return rooms[-1]

        placed = map_leaves(place_leaf, batch)
        stream = self._cuda.current_stream()
        # Rooms may be memory that work under way on the program's stream still uses.
        self._stream.wait_stream(stream)
        for room, host in zip(rooms, hosts, strict=True):
            self._cuda.copy(room, host, self._stream)
        copied = self._stream.record_event()
        self._flying.append((copied, hosts))
        return _Copying(placed, rooms, stream, copied)

    def hand_out(self, copying: _Copying) -> Any:
        """The batch, for work on the current stream, which waits for the copy."""
        stream = self._cuda.current_stream()
        stream.wait_event(copying.copied)
        if stream != copying.stream:
            stream.wait_stream(copying.stream)
            for room in copying.rooms:
                self._cuda.used_on(room, stream)
        return copying.batch

    def settle(self) -> None:
        """Wait for all copies, so that what they write to may be dropped."""
        self._land(0)

    def close(self) -> None:
        """Wait for all copies, and take back what was registered."""
        self._land(0)
        while self._slots:
            # Before the slot's pages may move, and before they are unmapped.
            self._cuda.unregister(self._slots[-1].address)
            self._slots.pop()

    def _readable(self, host: torch.Tensor) -> torch.Tensor:
        """The tensor, or a copy of it, where the device reads it in place."""
        address = host.data_ptr()
        in_place = (
            any(0 <= address - slot.address < slot.nbytes for slot in self._slots)
            or self._cuda.is_pinned(host)
            or self._register(address)
        )
        return host if in_place else self._cuda.staged(host)

    def _register(self, address: int) -> bool:
        """Register the slot of an address; False where it lies in none."""
        slot = None if self._refused else _core.pin_slot(address)
        if slot is None:
            return False
        self._refused = not self._cuda.register(slot.address, slot.nbytes)
        if not self._refused:
            self._slots.append(slot)
        return not self._refused

    def _land(self, at_most: int) -> None:
        """Let go of what is copied, and wait until no more are under way."""
        while self._flying:
            copied, _ = self._flying[0]
            if not copied.query():
                if len(self._flying) <= at_most:
                    return
                copied.synchronize()
            self._flying.popleft()
