"""Copies batches to a CUDA device while it computes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from typing import Any, NamedTuple

import torch

from gristmill import _core
from gristmill._torch.batches.tensors import as_tensor_leaf, is_plain, map_leaves

# CUDA's flag cudaHostRegisterPortable: all devices of the process may read the memory.
_REGISTER_PORTABLE = 1


class Cuda:
    """A CUDA device, with the calls that copying batches needs.

    Args:
        device: A ``torch.device`` of type cuda; without an index, the current device.
    """

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", index)

    def new_stream(self) -> Any:
        """Return a new stream, separate from the one that the program computes on."""
        return torch.cuda.Stream(self.device)

    def current_stream(self) -> Any:
        """Return the stream that the calling thread computes on."""
        return torch.cuda.current_stream(self.device)

    def new_like(self, host: torch.Tensor) -> torch.Tensor:
        """Allocate an uninitialized tensor like `host` for the current stream."""
        return torch.empty_like(host, device=self.device)

    def copy(self, target: torch.Tensor, host: torch.Tensor, stream: Any) -> None:
        """Queue a copy on a stream; `host` must live until the copy is done."""
        with torch.cuda.stream(stream):
            target.copy_(host, non_blocking=True)

    def keep_until_done(self, target: torch.Tensor, stream: Any) -> None:
        """Let torch reuse a tensor's memory only after a stream's present work."""
        target.record_stream(stream)

    def is_pinned(self, host: torch.Tensor) -> bool:
        """Return whether the tensor's memory is pinned."""
        pinned: bool = host.is_pinned()
        return pinned

    def copy_to_pinned(self, host: torch.Tensor) -> torch.Tensor:
        """Copy a tensor to pinned memory, which torch reuses."""
        return host.pin_memory()

    def register(self, address: int, nbytes: int) -> bool:
        """Pin a range of memory; return False if CUDA refuses."""
        error = torch.cuda.cudart().cudaHostRegister(
            address, nbytes, _REGISTER_PORTABLE
        )
        if int(error) == 0:
            return True
        # CUDA keeps the error and reports it at the next kernel launch.  Launch a
        # kernel here, so that the program's next one does not fail.
        with contextlib.suppress(RuntimeError):
            torch.ones(1, device=self.device)
        return False

    def unregister(self, address: int) -> None:
        """Undo `register`; all copies from this memory must be done."""
        torch.cuda.cudart().cudaHostUnregister(address)


@dataclasses.dataclass(slots=True)
class _PlacedBatch:
    """A batch of tensors on the device, to which copies are queued.

    Attributes:
        batch: The batch, which contains `targets`.
        targets: The tensors that data is copied to.
        stream: The stream that the memory of `targets` belongs to.
        copied_event: The event after the last copy.
    """

    batch: Any
    targets: list[torch.Tensor]
    stream: Any
    copied_event: Any


class _HostMemory(NamedTuple):
    """The tensors on the host that a batch is copied from, until `copied_event`."""

    copied_event: Any
    hosts: list[torch.Tensor]


class CudaCopies:
    """Copies batches to a device on a separate stream.

    Torch's allocator provides the memory on the device, for the stream that is current
    when the copy is queued.  The copy waits for the earlier work of that stream.  So
    memory of a batch that the program dropped can be reused at once, in stream order,
    as if the program had called ``x.to(device)``.  After a few batches nothing more is
    allocated, even if the program runs far ahead of the device.  Memory marked by
    ``record_stream`` does not guarantee this.

    The host memory of a batch, usually a slot, is held until its copies are done.  At
    most `depth` + 1 batches are held; then the program waits for the device.

    The device reads slots of shared memory in place.  The first copy from a slot
    registers the whole slot, which stays registered for later batches.  Registering is
    slow, but a loader soon reuses the same few slots, so it ends after the first
    batches.  If CUDA refuses (in some containers and virtual machines), no other slot
    is tried.

    The thread that iterates calls all methods.  The garbage collector may call `close`
    after that, in any thread.

    Args:
        cuda: The device.
        depth: The number of unfinished copies up to which `place` does not wait.
    """

    def __init__(self, cuda: Cuda, depth: int) -> None:
        self._cuda = cuda
        self._depth = depth
        self._stream = cuda.new_stream()
        self._registered_slots: list[_core.PinnedSlot] = []
        # True if CUDA has refused to register a slot.
        self._is_refused = False
        # The memory of unfinished copies, oldest first.
        self._running: collections.deque[_HostMemory] = collections.deque()

    def place(self, batch: Any) -> _PlacedBatch:
        """Queue the copies of a batch."""
        self._release_finished(self._depth)
        hosts: list[torch.Tensor] = []
        targets: list[torch.Tensor] = []

        def place_leaf(leaf: Any) -> Any:
            leaf = as_tensor_leaf(leaf)
            if not is_plain(leaf):
                return leaf.to(self._cuda.device) if hasattr(leaf, "to") else leaf
            hosts.append(self._pinned(leaf))
            targets.append(self._cuda.new_like(leaf))
            return targets[-1]

        placed = map_leaves(place_leaf, batch)
        stream = self._cuda.current_stream()
        # Unfinished work on the program's stream may still use the memory of `targets`.
        self._stream.wait_stream(stream)
        for target, host in zip(targets, hosts, strict=True):
            self._cuda.copy(target, host, self._stream)
        copied_event = self._stream.record_event()
        self._running.append(_HostMemory(copied_event, hosts))
        return _PlacedBatch(placed, targets, stream, copied_event)

    def hand_out(self, placed: _PlacedBatch) -> Any:
        """Return the batch, and make the current stream wait for its copies."""
        stream = self._cuda.current_stream()
        stream.wait_event(placed.copied_event)
        if stream != placed.stream:
            # The program has changed its stream since `place`.
            stream.wait_stream(placed.stream)
            for target in placed.targets:
                self._cuda.keep_until_done(target, stream)
        return placed.batch

    def wait(self) -> None:
        """Wait for all copies, so that their destinations may be freed."""
        self._release_finished(0)

    def close(self) -> None:
        """Wait for all copies, and unregister all slots."""
        self._release_finished(0)
        while self._registered_slots:
            # Unregister before releasing the slot, whose pages may then move or be
            # unmapped.
            self._cuda.unregister(self._registered_slots[-1].address)
            self._registered_slots.pop()

    def _pinned(self, host: torch.Tensor) -> torch.Tensor:
        """Return the tensor if its memory is or can be pinned, else a pinned copy."""
        address = host.data_ptr()
        is_pinned = (
            any(
                0 <= address - slot.address < slot.nbytes
                for slot in self._registered_slots
            )
            or self._cuda.is_pinned(host)
            or self._register(address)
        )
        return host if is_pinned else self._cuda.copy_to_pinned(host)

    def _register(self, address: int) -> bool:
        """Register the slot that contains an address; return whether it worked."""
        slot = None if self._is_refused else _core.pin_slot(address)
        if slot is None:
            return False
        self._is_refused = not self._cuda.register(slot.address, slot.nbytes)
        if not self._is_refused:
            self._registered_slots.append(slot)
        return not self._is_refused

    def _release_finished(self, max_running: int) -> None:
        """Release finished batches; wait until at most `max_running` are copying."""
        while self._running:
            copied_event = self._running[0].copied_event
            if not copied_event.query():
                if len(self._running) <= max_running:
                    return
                copied_event.synchronize()
            self._running.popleft()
