"""Copies batches to a CUDA device while it computes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from typing import Any

import torch

from gristmill import _core
from gristmill._torch.batches.tensors import as_tensor_leaf, is_plain, map_leaves

# cudaHostRegisterPortable: all CUDA contexts of the process may access the memory.
_PORTABLE = 1


class Cuda:
    """A CUDA device, with the calls needed to copy batches.

    Args:
        device: A ``torch.device`` of type cuda; without an index, the current one.
    """

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", index)

    def new_stream(self) -> Any:
        """Return a new stream, separate from the program's."""
        return torch.cuda.Stream(self.device)

    def current_stream(self) -> Any:
        """Return the current stream of the calling thread."""
        return torch.cuda.current_stream(self.device)

    def room_for(self, host: torch.Tensor) -> torch.Tensor:
        """Return an uninitialized device tensor like `host`, for the current stream."""
        return torch.empty_like(host, device=self.device)

    def copy(self, room: torch.Tensor, host: torch.Tensor, stream: Any) -> None:
        """Copy on a stream. `host` must stay alive until the copy is done."""
        with torch.cuda.stream(stream):
            room.copy_(host, non_blocking=True)

    def used_on(self, room: torch.Tensor, stream: Any) -> None:
        """Delay the reuse of a tensor's memory until a stream has used it."""
        room.record_stream(stream)

    def is_pinned(self, host: torch.Tensor) -> bool:
        """Return whether the tensor is in pinned memory."""
        pinned: bool = host.is_pinned()
        return pinned

    def staged(self, host: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor in pinned memory, which torch reuses later."""
        return host.pin_memory()

    def register(self, address: int, nbytes: int) -> bool:
        """Register memory so that the device can read it in place.

        Returns False if CUDA refuses.
        """
        error = torch.cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE)
        if int(error) == 0:
            return True
        # CUDA stores the error and reports it at the next check, which is the first
        # kernel that torch launches.  Launch a kernel here to clear it.
        with contextlib.suppress(RuntimeError):
            torch.ones(1, device=self.device)
        return False

    def unregister(self, address: int) -> None:
        """Undo `register`. No copies from this memory may be in progress."""
        torch.cuda.cudart().cudaHostUnregister(address)


@dataclasses.dataclass(slots=True)
class _Copying:
    """A batch whose values are being copied to `rooms`."""

    batch: Any
    rooms: list[torch.Tensor]
    stream: Any  # The one that the memory of the rooms belongs to.
    copied: Any  # The event after the last copy.


class CudaCopies:
    """Copies batches on a separate stream.

    Memory on the device comes from torch's allocator, for the stream that is current
    when the copy begins, and the copy waits for earlier work on that stream.  The
    memory of a batch that the program dropped can therefore be reused at once, in
    stream order, as if the program itself had called ``x.to(device)``.  After a few
    batches nothing is allocated, even if the program runs far ahead of the device.
    Memory marked by ``record_stream`` cannot guarantee this.  The host memory of a
    batch, usually a slot, is kept until its copies are done.  At most `depth` + 1
    batches are kept; then the program waits for the device.

    The device reads slots of shared memory in place.  A whole slot is registered when
    the first batch in it is copied, and stays registered for later batches.  A loader
    soon reuses the same few slots, so the slow registration only happens for the first
    batches.  If CUDA refuses once (in some containers and virtual machines), it is not
    tried again.

    Args:
        cuda: The device.
        depth: The number of unfinished copies before `place` waits.
    """

    def __init__(self, cuda: Cuda, depth: int) -> None:
        self._cuda = cuda
        self._depth = depth
        self._stream = cuda.new_stream()
        # The registered slots.
        self._slots: list[_core.PinnedSlot] = []
        self._refused = False
        self._flying: collections.deque[tuple[Any, list[torch.Tensor]]]
        self._flying = collections.deque()

    def place(self, batch: Any) -> _Copying:
        """Start copying a batch."""
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
        # Unfinished work on the program's stream may still use the memory of the rooms.
        self._stream.wait_stream(stream)
        for room, host in zip(rooms, hosts, strict=True):
            self._cuda.copy(room, host, self._stream)
        copied = self._stream.record_event()
        self._flying.append((copied, hosts))
        return _Copying(placed, rooms, stream, copied)

    def hand_out(self, copying: _Copying) -> Any:
        """Return the batch for the current stream, which waits for the copy."""
        stream = self._cuda.current_stream()
        stream.wait_event(copying.copied)
        if stream != copying.stream:
            stream.wait_stream(copying.stream)
            for room in copying.rooms:
                self._cuda.used_on(room, stream)
        return copying.batch

    def settle(self) -> None:
        """Wait for all copies, so that their memory may be dropped."""
        self._land(0)

    def close(self) -> None:
        """Wait for all copies, and unregister all slots."""
        self._land(0)
        while self._slots:
            # Unregister before the slot is released and its pages are moved or
            # unmapped.
            self._cuda.unregister(self._slots[-1].address)
            self._slots.pop()

    def _readable(self, host: torch.Tensor) -> torch.Tensor:
        """Return the tensor, or a copy, in memory that the device reads in place."""
        address = host.data_ptr()
        in_place = (
            any(0 <= address - slot.address < slot.nbytes for slot in self._slots)
            or self._cuda.is_pinned(host)
            or self._register(address)
        )
        return host if in_place else self._cuda.staged(host)

    def _register(self, address: int) -> bool:
        """Register the slot that contains an address; return False if there is none."""
        slot = None if self._refused else _core.pin_slot(address)
        if slot is None:
            return False
        self._refused = not self._cuda.register(slot.address, slot.nbytes)
        if not self._refused:
            self._slots.append(slot)
        return not self._refused

    def _land(self, at_most: int) -> None:
        """Release finished copies, and wait until at most `at_most` are in progress."""
        while self._flying:
            copied, _ = self._flying[0]
            if not copied.query():
                if len(self._flying) <= at_most:
                    return
                copied.synchronize()
            self._flying.popleft()
