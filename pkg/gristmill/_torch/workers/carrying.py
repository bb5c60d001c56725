"""Carries a dataset and its functions to the workers, tensors as cheaply as arrays.

An object wrapped in `Carried` is pickled with the memory of its tensors out of band,
so `gristmill._engine.packing` writes that once and all workers map it copy-on-write.
"""

from __future__ import annotations

import pickle
import socket
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseProxy
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch

from gristmill._engine.mapped import reduce_mapped
from gristmill._torch.batches import classes, pickling

# What answers only to a process with the same ``authkey``.
INHERITED = (Connection, BaseProxy, socket.socket)


class NeedsFork(RuntimeError):
    """An object holds what a process can only inherit, or give away no copy of.

    These are tensors and arrays in shared memory, which copies would no longer share,
    and the locks, queues and values of ``multiprocessing``.
    """


class Carried:
    """Stands for an object in a pickle; what comes out is the object itself.

    Args:
        thing: Anything that cloudpickle and `pickling` together can pickle.

    Raises:
        NeedsFork: Only a fork of this process can have it.  Raised by pickling.
    """

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        try:
            pickled, buffers = pickling.dumps_by_value(self._thing, _ProgramPickler)
        except RuntimeError as error:
            if "through inheritance" in str(error):
                raise NeedsFork(f"{error}. Use worker processes by fork.") from error
            raise
        blobs, places = pickling.merged(buffers)
        out_of_band: list[Any] = [pickle.PickleBuffer(blob.data) for blob in blobs]
        return open_carried, (pickle.PickleBuffer(pickled), out_of_band, places)


def open_carried(pickled: Any, blobs: list[Any], places: pickling.Places) -> Any:
    """The object that was carried; its tensors and arrays view the blobs."""
    views = [np.frombuffer(blob, np.uint8) for blob in blobs]
    return pickling.loads(pickled, pickling.parted(views, places))


class _ProgramPickler(pickling.CloudPickler):
    """Keeps what is shared with other processes shared, or refuses."""

    _spans: list[tuple[int, int]] | None = None

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, np.ndarray | torch.Tensor) and self._is_in_shared(thing):
            raise NeedsFork(
                "An array in memory that processes share would no longer be shared if"
                " workers got a copy. Use worker processes by fork."
            )
        if isinstance(thing, np.ndarray):
            reduced = reduce_mapped(thing)
            if reduced is not None:
                return reduced
        if isinstance(thing, torch.Tensor) and thing.is_shared():
            raise NeedsFork(
                "A tensor in shared memory would no longer be shared if workers got "
                "a copy. Use worker processes by fork."
            )
        if isinstance(thing, INHERITED):
            raise NeedsFork(
                f"A {type(thing).__name__} works only in this process and its forks. "
                "Use worker processes by fork."
            )
        return super().reducer_override(thing)

    def reduce_class(self, cls: type) -> Any:
        """How to pickle a class: instances find it when they come back."""
        return classes.give(cls, cloudpickle.Pickler.reducer_override(self, cls))

    def _is_in_shared(self, thing: npt.NDArray[Any] | torch.Tensor) -> bool:
        """Whether writes to an array or tensor are seen by other processes."""
        if isinstance(thing, np.ndarray):
            if thing.flags.owndata or thing.dtype.hasobject:
                return False
            address = thing.ctypes.data
        else:
            plain = thing.layout is torch.strided and not thing.is_nested
            if not plain or thing.device.type != "cpu":
                return False
            if torch.cuda.is_initialized() and thing.is_pinned():
                return False
            address = thing.data_ptr()
        if self._spans is None:
            self._spans = _shared_spans()
        return any(begin <= address < end for begin, end in self._spans)


def _shared_spans() -> list[tuple[int, int]]:
    """The addresses of this process that it shares for writing, but for our slots."""
    spans = []
    with open("/proc/self/maps") as file:
        for line in file:
            addresses, access, _, _, _, *name = line.split(maxsplit=5)
            ours = bool(name) and name[0].startswith("/memfd:gristmill")
            if access.startswith("rw") and access.endswith("s") and not ours:
                begin, end = (int(address, 16) for address in addresses.split("-"))
                spans.append((begin, end))
    return spans


class CarriedProgram(Carried):
    """Carries what workers run; see `gristmill._engine.packing`.

    Args:
        program: A `gristmill._engine.runnable.Runnable`.
    """

    def unpicklable_note(self) -> str:
        """The program's."""
        note: str = self._thing.unpicklable_note()
        return note
