"""Pickles a loader's dataset for workers of the launcher.

Its tensors and arrays reach these as memory that they map copy-on-write.
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
    """Stands for a `Runnable` in a pickle; what comes out is the program itself.

    The memory of its tensors is out of band, so `gristmill._engine.packing` writes that
    once and all workers map it copy-on-write.  Tensors in shared memory, locks, queues
    and what else a child started by "spawn" shares with its parent, workers share, too.

    Attributes:
        inherited: Descriptors that workers need for these, known after pickling.

    Raises:
        RuntimeError: Only a fork of this process can have it.  Raised by pickling.
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        self.inherited: list[int] = []

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        self.inherited.clear()
        with inheriting.inheriting(self.inherited):
            # Arrays share memory in a fork, so one pool has all that they view.
            sent = dumped(self._program, _ProgramPickler, lambda owner: 0)
        pickled, blobs, places = sent
        out_of_band: list[Any] = [pickle.PickleBuffer(blob.data) for blob in blobs]
        tracker = inheriting.tracker(self.inherited)
        return _loaded, (pickle.PickleBuffer(pickled), out_of_band, places, tracker)

    def unpicklable_note(self) -> str:
        """The program's."""
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
    """Keeps what is shared with other processes shared, and storages of tensors."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Of tensors with the same storage, which lives as long as its buffers.
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
    """Return whether a tensor or storage lies in memory that processes share."""
    if isinstance(thing, torch.Tensor):
        return thing.layout is torch.strided and bool(thing.is_shared())
    return isinstance(thing, torch.UntypedStorage) and bool(thing.is_shared())
