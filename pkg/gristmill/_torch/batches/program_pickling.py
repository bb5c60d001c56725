"""Pickles a loader's dataset for workers of the launcher.

The workers map the memory of its tensors and arrays copy-on-write.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import torch

from gristmill._engine.packing import reduce_mapped
from gristmill._torch import private
from gristmill._torch.batches.pickling import (
    CloudPickler,
    Places,
    Storages,
    dump_with,
    loads,
    make_tensor,
    receive_class,
)
from gristmill._workers import inheriting


class ProgramPickle:
    """A wrapper that pickles a `Runnable` and unpickles to the `Runnable` itself.

    The memory of its tensors is out of band, so `gristmill._engine.packing` writes it
    once and all workers map it copy-on-write.  Workers share tensors in shared memory,
    locks, queues and all other objects that a child started by "spawn" shares with its
    parent.

    Attributes:
        inherited: File descriptors that workers need for shared objects, set by
            pickling.

    Raises:
        RuntimeError: Pickling found an object that only a fork of this process can use.
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        self.inherited: list[int] = []

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        self.inherited.clear()
        with inheriting.inheriting(self.inherited):
            # A fork keeps memory that arrays share, so use one pool for all owners.
            sent = dump_with(self._program, _ProgramPickler, lambda owner: 0)
        pickled, blobs, places = sent
        out_of_band: list[Any] = [pickle.PickleBuffer(blob.data) for blob in blobs]
        tracker = inheriting.tracker(self.inherited)
        return _load, (pickle.PickleBuffer(pickled), out_of_band, places, tracker)

    def unpicklable_note(self) -> str:
        """Return the program's note on objects that cannot be pickled."""
        note: str = self._program.unpicklable_note()
        return note


def _load(
    pickled: Any,
    blobs: list[Any],
    places: Places,
    tracker: inheriting.Inherited | None,
) -> Any:
    inheriting.use_tracker(tracker)
    return loads(pickled, [np.frombuffer(blob, np.uint8) for blob in blobs], places)


class _ProgramPickler(CloudPickler):
    """Keeps memory shared that processes share, or several tensors of the program."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The dict that all tensors of a storage get, by the address of the storage,
        # which lives as long as its buffers.
        self._storages: dict[int, Storages] = {}

    def reducer_override(self, thing: Any) -> Any:
        if _is_shared(thing):
            if thing.device.type != "cpu":
                raise RuntimeError(
                    "The launcher's workers need a dataset on the CPU, got a"
                    f" {type(thing).__name__} on {thing.device}. Move it to the CPU, or"
                    " pass multiprocessing_context='spawn'."
                )
            return NotImplemented  # Torch's reducer.
        mapped = reduce_mapped(thing) if isinstance(thing, np.ndarray) else None
        if mapped is not None:
            return mapped
        reduced = super().reducer_override(thing)
        if isinstance(reduced, tuple) and reduced[0] is make_tensor:
            # So a batch of these tensors shares memory again in the loader's process.
            address = private.storage_address(thing.untyped_storage())
            storages = self._storages.setdefault(address, {})
            return make_tensor, (*reduced[1], storages)
        if isinstance(thing, type) and isinstance(reduced, tuple):  # By value.
            make, arguments, *state = reduced
            return receive_class, (make, arguments), *state
        return reduced


def _is_shared(thing: Any) -> bool:
    """Return whether a tensor or storage lies in memory that processes share."""
    if isinstance(thing, torch.Tensor):
        return thing.layout is torch.strided and bool(thing.is_shared())
    return isinstance(thing, torch.UntypedStorage) and bool(thing.is_shared())
