"""Pickles a loader's dataset for workers of the launcher.

Workers map the memory of its tensors and arrays copy-on-write.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import torch

from gristmill._engine.packing import reduce_mapped
from gristmill._torch.batches.pickling import (
    CloudPickler,
    Places,
    Storages,
    dumped,
    loads,
    make_tensor,
    receive_class,
)
from gristmill._workers import inheriting


class ProgramPickle:
    """Pickles a `Runnable`. Unpickling returns the program itself.

    The memory of its tensors is out of band: `gristmill._engine.packing` writes it
    once, and all workers map it copy-on-write.  Workers also share tensors in shared
    memory, locks, queues and other objects that a "spawn" child shares with its parent.

    Attributes:
        inherited: Descriptors that workers need for shared objects, set by pickling.

    Raises:
        RuntimeError: When pickled: an object can only be passed to a fork of this
            process.
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        self.inherited: list[int] = []

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        self.inherited.clear()
        with inheriting.inheriting(self.inherited):
            # Use one pool for all buffers, because arrays would share memory in a fork.
            sent = dumped(self._program, _ProgramPickler, lambda owner: 0)
        pickled, blobs, places = sent
        out_of_band: list[Any] = [pickle.PickleBuffer(blob.data) for blob in blobs]
        tracker = inheriting.tracker(self.inherited)
        return _loaded, (pickle.PickleBuffer(pickled), out_of_band, places, tracker)

    def unpicklable_note(self) -> str:
        """Return the program's note."""
        note: str = self._program.unpicklable_note()
        return note


def _loaded(
    pickled: Any,
    blobs: list[Any],
    places: Places,
    tracker: inheriting.Inherited | None,
) -> Any:
    inheriting.use_tracker(tracker)
    return loads(pickled, [np.frombuffer(blob, np.uint8) for blob in blobs], places)


class _ProgramPickler(CloudPickler):
    """Keeps objects shared that other processes share, and storages of tensors."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The storages that several tensors share. They live as long as their buffers.
        self._storages: dict[int, Storages] = {}

    def reducer_override(self, thing: Any) -> Any:
        if _is_shared(thing):
            if thing.device.type != "cpu":
                raise RuntimeError(
                    f"A {type(thing).__name__} on {thing.device} cannot be sent to"
                    " workers of the launcher, which are forks of a process that must"
                    " not use the device. Keep datasets on the CPU, or start workers by"
                    " spawn."
                )
            return NotImplemented  # Torch's reducer.
        mapped = reduce_mapped(thing) if isinstance(thing, np.ndarray) else None
        if mapped is not None:
            return mapped
        reduced = super().reducer_override(thing)
        if isinstance(reduced, tuple) and reduced[0] is make_tensor:
            # A batch of these tensors shares memory again in the loader's process.
            storage = thing.untyped_storage()._cdata
            shared = self._storages.setdefault(storage, {})
            return make_tensor, (*reduced[1], shared)
        if isinstance(thing, type) and isinstance(reduced, tuple):  # By value.
            make, arguments, *rest = reduced
            return receive_class, (make, arguments), *rest
        return reduced


def _is_shared(thing: Any) -> bool:
    """Return whether a tensor or storage is in shared memory."""
    if isinstance(thing, torch.Tensor):
        return thing.layout is torch.strided and bool(thing.is_shared())
    return isinstance(thing, torch.UntypedStorage) and bool(thing.is_shared())
