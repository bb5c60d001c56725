"""Sends a program to the workers: one sealed, anonymous file for all of them.

The program is pickled (by cloudpickle, so lambdas, closures and classes from
``__main__`` work) with its large buffers out of band, and every worker maps the
same file: N workers hold one copy of an in-memory array.  A long list is written
element by element and read back one element at a time, so that its Python objects
exist only while they are used.

File layout: the snapshot of a long list if there is one, buffers on 64-byte
boundaries, the pickle, a pickled table of (offset, bytes), and last the table's
offset as a little-endian u64.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import io
import mmap
import os
import pickle
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from gristmill._base import open_files
from gristmill._engine.mapped import reduce_mapped
from gristmill._engine.runnable import Carrier, Runnable

OUT_OF_BAND_BYTES = 4096
LONG_LIST = 4096
CHUNK_BYTES = 4 << 20
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Snapshot:
    """A list in serialized form: ``snapshot[i]`` makes element i anew.

    Args:
        data: The pickled elements, one after another.
        ends: Where each element ends in `data`, int64, shape (n,).
    """

    def __init__(self, data: memoryview, ends: npt.NDArray[np.int64]) -> None:
        self._data = data
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> Any:
        begin = self._ends[index - 1] if index else 0
        return pickle.loads(self._data[begin : self._ends[index]])


@dataclasses.dataclass(frozen=True)
class _SnapshotAt:
    """Stands for a snapshot in the pickled program."""

    data: tuple[int, int]
    ends: tuple[int, int]


class _Pickler(open_files.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        reduced = reduce_mapped(thing) if isinstance(thing, np.ndarray) else None
        return super().reducer_override(thing) if reduced is None else reduced


def pack(program: Runnable | Carrier) -> int:
    """Write a program to a sealed file; returns its descriptor.

    Raises:
        Exception: Whatever pickling raised, with a note that names the part of the
            pipeline that cannot be pickled.
    """
    fd = _above_standard_streams(
        os.memfd_create("gristmill-program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    )
    try:
        with open(fd, "wb", CHUNK_BYTES, closefd=False) as writer:
            _write(writer, program)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def unpack(fd: int) -> Runnable:
    """The program of a sealed file.  Its arrays view a private mapping of it."""
    size = os.fstat(fd).st_size
    view = memoryview(mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE))
    (table_at,) = struct.unpack("<Q", view[-8:])
    *buffers, (begin, length) = pickle.loads(view[table_at:-8])
    pickled = view[begin : begin + length]
    program: Runnable = pickle.loads(
        pickled, buffers=[view[at : at + count] for at, count in buffers]
    )
    source: Any = getattr(program, "source", None)
    if isinstance(source, _SnapshotAt):
        return _with_source(program, _open_snapshot(view, source))
    return program


def _write(writer: BinaryIO, program: Runnable | Carrier) -> None:
    source: Any = getattr(program, "source", None)
    if type(source) in (list, tuple) and len(source) >= LONG_LIST:
        program = _with_source(program, _place_snapshot(writer, source))
    table: list[tuple[int, int]] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        with contextlib.suppress(BufferError):
            raw = buffer.raw()
            if raw.nbytes >= OUT_OF_BAND_BYTES:
                table.append(_place(writer, raw))
                return False
        return True

    try:
        pickled = io.BytesIO()
        _Pickler(pickled, 5, buffer_callback=keep_in_band).dump(program)
    except Exception as error:
        error.add_note(program.unpicklable_note())
        raise
    table.append(_place(writer, pickled.getbuffer()))
    at = writer.tell()
    writer.write(pickle.dumps(table))
    writer.write(struct.pack("<Q", at))


def _place(writer: BinaryIO, data: memoryview) -> tuple[int, int]:
    """Append on a 64-byte boundary; returns (offset, bytes)."""
    writer.write(b"\0" * (-writer.tell() % 64))
    begin = writer.tell()
    writer.write(data)
    return begin, len(data)


def _with_source(program: Any, source: Any) -> Runnable:
    """The program of a loader with something else in the place of its source."""
    changed: Runnable = dataclasses.replace(program, source=source)
    return changed


def _place_snapshot(
    writer: BinaryIO, elements: list[Any] | tuple[Any, ...]
) -> _SnapshotAt:
    end = begin = writer.tell()
    ends = np.empty(len(elements), np.int64)
    for i, data in enumerate(_pickled(elements)):
        end += writer.write(data)
        ends[i] = end - begin
    return _SnapshotAt((begin, end - begin), _place(writer, ends.data.cast("B")))


def _pickled(elements: list[Any] | tuple[Any, ...]) -> Iterator[bytes]:
    for element in elements:
        try:
            data = pickle.dumps(element, 5)
            known = b"__main__" not in data
        except Exception:
            known = False
        yield data if known else open_files.dumps(element)


def _open_snapshot(view: memoryview, at: _SnapshotAt) -> Snapshot:
    begin, size = at.data
    ends_begin, ends_size = at.ends
    ends = np.frombuffer(view[ends_begin : ends_begin + ends_size], np.int64)
    return Snapshot(view[begin : begin + size], ends)


def _above_standard_streams(fd: int) -> int:
    """A file that is not where others print, if those streams are closed."""
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)
