"""Pickles what workers of the launcher run, tensors as cheaply as arrays."""

from __future__ import annotations

import pickle
import socket
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseProxy
from typing import Any

import numpy as np
import torch

from gristmill._engine.packing import reduce_mapped
from gristmill._torch.batches import pickling

# What answers only to a process with the same ``authkey``.
INHERITED = (Connection, BaseProxy, socket.socket)


class NeedsFork(RuntimeError):
    """An object holds what a process can only inherit, or give away no copy of."""


class ProgramPickle:
    """Stands for a program in a pickle; what comes out is the program itself.

    The memory of its tensors is out of band, so `gristmill._engine.packing` writes that
    once and all workers map it copy-on-write.

    Args:
        program: A `gristmill._engine.stream.Runnable`.

    Raises:
        NeedsFork: Only a fork of this process can have it.  Raised by pickling.
    """

    def __init__(self, program: Any) -> None:
        self._program = program

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        pickled, buffers = pickling.dumped(self._program, _ProgramPickler)
        blobs, places = pickling.merged(buffers)
        out_of_band: list[Any] = [pickle.PickleBuffer(blob.data) for blob in blobs]
        return _loaded, (pickle.PickleBuffer(pickled), out_of_band, places)

    def unpicklable_note(self) -> str:
        """The program's."""
        note: str = self._program.unpicklable_note()
        return note


def _loaded(pickled: Any, blobs: list[Any], places: pickling.Places) -> Any:
    """The program; its tensors and arrays view the blobs."""
    views = [np.frombuffer(blob, np.uint8) for blob in blobs]
    return pickling.loads(pickled, pickling.parted(views, places))


class _ProgramPickler(pickling.CloudPickler):
    """Keeps what is shared with other processes shared, or refuses."""

    def reducer_override(self, thing: Any) -> Any:
        shared = isinstance(thing, torch.Tensor) and thing.is_shared()
        if shared or isinstance(thing, INHERITED):
            raise NeedsFork(
                f"A {type(thing).__name__} {'in shared memory ' if shared else ''}works"
                " only in this process and its forks. Use worker processes by fork."
            )
        mapped = reduce_mapped(thing) if isinstance(thing, np.ndarray) else None
        if mapped is not None:
            return mapped
        reduced = super().reducer_override(thing)
        if isinstance(thing, type) and isinstance(reduced, tuple):  # By value.
            make, arguments, *rest = reduced
            return pickling.receive_class, (make, arguments), *rest
        return reduced
