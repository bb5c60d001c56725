"""Sends a program to the workers in one sealed, anonymous file.

The program is pickled by cloudpickle, so lambdas, closures and classes from
``__main__`` work.  Its large buffers are stored out of band, and all workers map the
same file, so N workers share one copy of an in-memory array.  A long list is written
element by element and read one element at a time, so its Python objects exist only
while they are used.

An array that views a mapped file, from ``np.load(path, mmap_mode="r")`` or
``np.memmap``, may be larger than memory.  Only the file's name is sent, and a worker
maps the same bytes of the same file.

File layout: the snapshot of a long list if there is one, buffers on 64-byte
boundaries, the pickle, a pickled table of (offset, bytes), and last the table's
offset as a little-endian u64.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import io
import os
import pickle
import stat
import struct
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from gristmill._base import open_files
from gristmill._engine.stream import Runnable

# Buffers of at least this size are stored out of band.
OUT_OF_BAND_BYTES = 4096
# Only lists of at least this length are written element by element.
LONG_LIST = 4096
# A list is not split if its elements share objects of this many bytes per element.
SHARED_BYTES = 1024
# The sample of a long list: RUNS evenly spaced runs of RUN_LENGTH elements.
RUN_LENGTH = 8
RUNS = 8
CHUNK_BYTES = 4 << 20
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

Array = npt.NDArray[Any]

# The process that has loaded the program, and the descriptors that it opened for that.
# Its forks have copies of both.
_loader_pid = 0
_opened_fds: set[int] = set()

# Arrays mapped in mode "c" have private changes, so they are sent as bytes.
SHARED_MODES = ("r", "r+", "w+")


class Snapshot:
    """A list in serialized form: ``snapshot[i]`` unpickles element i.

    Element i occupies the bytes ``bounds[i]`` to ``bounds[i + 1]`` of the program's
    `file`.
    """

    file: memoryview

    def __init__(self, bounds: npt.NDArray[np.int64]) -> None:
        self._bounds = bounds

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> Any:
        return pickle.loads(self.file[self._bounds[index] : self._bounds[index + 1]])


class _Pickler(open_files.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        reduced = reduce_mapped(thing) if isinstance(thing, np.ndarray) else None
        return super().reducer_override(thing) if reduced is None else reduced


def pack(program: Any) -> int:
    """Write a `Runnable`, or an object that pickles as one, to a sealed file.

    Returns the file's descriptor, which the caller closes.

    Raises:
        Exception: An error from pickling, with a note that names the part of the
            pipeline that cannot be pickled.
    """
    memfd = os.memfd_create("gristmill-program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # Avoid the descriptors of the standard streams, if these are closed.
        fd = fcntl.fcntl(memfd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(memfd)
    try:
        with open(fd, "wb", CHUNK_BYTES, closefd=False) as writer:
            _write(writer, program)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def unpack(fd: int) -> Runnable:
    """Return the program in a sealed file, and remember the files that it opens."""
    with remembering_files():
        return _load(fd)


@contextlib.contextmanager
def remembering_files() -> Iterator[None]:
    """Remember the files that the body opens, for `reopen_files` in forks."""
    global _loader_pid
    before = _descriptors()
    yield
    _opened_fds.update(_descriptors() - before)
    _loader_pid = os.getpid()


def _load(fd: int) -> Runnable:
    """Return the program in a sealed file; its arrays view a private mapping of it."""
    import mmap  # The parent needs it only if its data is mapped.

    size = os.fstat(fd).st_size
    view = memoryview(mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE))
    (table_offset,) = struct.unpack("<Q", view[-8:])
    *buffers, (begin, length) = pickle.loads(view[table_offset:-8])
    pickled = view[begin : begin + length]
    program: Runnable = pickle.loads(
        pickled, buffers=[view[offset : offset + nbytes] for offset, nbytes in buffers]
    )
    source: Any = getattr(program, "source", None)
    if isinstance(source, Snapshot):
        source.file = view
    return program


def _write(writer: BinaryIO, program: Any) -> None:
    source: Any = getattr(program, "source", None)
    if type(source) in (list, tuple) and _should_split(source):
        snapshot = Snapshot(_write_elements(writer, source))
        program = dataclasses.replace(program, source=snapshot)
    table: list[tuple[int, int]] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        with contextlib.suppress(BufferError):
            raw = buffer.raw()
            if raw.nbytes >= OUT_OF_BAND_BYTES:
                table.append(_append_aligned(writer, raw))
                return False
        return True

    try:
        pickled = io.BytesIO()
        _Pickler(pickled, 5, buffer_callback=keep_in_band).dump(program)
    except Exception as error:
        error.add_note(program.unpicklable_note())
        raise
    table.append(_append_aligned(writer, pickled.getbuffer()))
    table_offset = writer.tell()
    writer.write(pickle.dumps(table))
    writer.write(struct.pack("<Q", table_offset))


def _append_aligned(writer: BinaryIO, data: memoryview) -> tuple[int, int]:
    """Append data on a 64-byte boundary; return (offset, bytes)."""
    writer.write(b"\0" * (-writer.tell() % 64))
    begin = writer.tell()
    writer.write(data)
    return begin, len(data)


def _should_split(elements: Sequence[Any]) -> bool:
    """Return whether a list is written element by element."""
    count = len(elements)
    if count < LONG_LIST:
        return False
    starts = range(0, count - RUN_LENGTH, count // RUNS)
    sample = [each for start in starts for each in elements[start : start + RUN_LENGTH]]
    # Separate pickles repeat the objects that the elements share.
    try:
        separate_bytes = sum(len(pickle.dumps(each, 5)) for each in sample)
        joint_bytes = len(pickle.dumps(sample, 5))
    except Exception:
        return True
    return separate_bytes - joint_bytes < SHARED_BYTES * len(sample)


def _write_elements(writer: BinaryIO, elements: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Append elements pickled one by one; return their bounds in the file."""
    bounds = np.full(len(elements) + 1, writer.tell(), np.int64)
    for i, element in enumerate(elements):
        try:
            data = pickle.dumps(element, 5)
            # Workers may not have objects of `__main__`, so cloudpickle pickles these.
            is_importable = b"__main__" not in data
        except Exception:
            is_importable = False
        writer.write(data if is_importable else open_files.dumps(element))
        bounds[i + 1] = writer.tell()
    return bounds


def reduce_mapped(array: Array) -> tuple[Any, ...] | None:
    """Return the pickle plan of an array that views a mapped file; else None.

    Returns None, too, if the plan could not describe the array: it is empty, contains
    objects or has a negative stride, or its file is gone.
    """
    owner = _owner(array)
    is_plain = array.size and min(array.strides, default=0) >= 0
    if owner is None or not is_plain or array.dtype.hasobject:
        return None
    path = os.path.abspath(owner.filename or "")
    try:
        version = _version(path)
    except OSError:
        return None
    import mmap

    mapping: Any = owner._mmap  # type: ignore[attr-defined]
    # NumPy maps from the start of the page in which the array begins.
    mapping_start = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY
    offset = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    writeable = array.flags.writeable
    location = (path, version, mapping_start + offset, writeable)
    return open_mapped, (location, array.shape, array.dtype, array.strides)


def open_mapped(
    location: tuple[str, tuple[int, ...], int, bool],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...],
) -> Array:
    """Map an array again.  If it was writeable, writes stay in this process.

    `location` is the file's path and `_version`, the offset of the array's first byte
    in the file, and whether the array was writeable.

    Raises:
        OSError: The file does not exist.
        ValueError: Another file has its name, or its size has changed.
    """
    path, version, offset, writeable = location
    if _version(path) != version:
        raise ValueError(
            f"{path} was replaced or resized after the data source had mapped it:"
            f" (device, inode, bytes) were {version} and are {_version(path)}. Do not"
            " replace files while a loader reads them."
        )
    spans = zip(shape, strides, strict=True)
    size = dtype.itemsize + sum((n - 1) * stride for n, stride in spans)
    mode: Any = "c" if writeable else "r"
    memory = np.memmap(path, np.uint8, mode, offset, (size,))
    return np.ndarray(shape, dtype, memory.data, 0, strides)


def _owner(array: Array) -> np.memmap[Any, Any] | None:
    """Return the mapped array of which `array` is a view, or None."""
    view: Any = array
    while isinstance(view, np.ndarray):
        base: Any = view.base
        if isinstance(view, np.memmap):
            import mmap

            if isinstance(base, mmap.mmap):
                return view if view.filename and view.mode in SHARED_MODES else None
        view = base
    return None


def _version(path: str) -> tuple[int, ...]:
    """Return a file's (device, inode, bytes), to detect that it was replaced."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size


def reopen_files() -> None:
    """Reopen the program's files, in a fork of the process that loaded it.

    Workers are forks of the process that loaded the program, so they share its open
    file descriptions, and a read in one of them would move the position of all.  Only
    regular files are reopened.  A file that is open only for writing, such as a log,
    stays shared.

    Raises:
        OSError: A file cannot be opened again.
    """
    if os.getpid() == _loader_pid:
        return
    for fd in _opened_fds:
        with contextlib.suppress(FileNotFoundError):  # It was closed.
            if stat.S_ISREG(os.stat(f"/proc/self/fd/{fd}").st_mode):
                _open_again(fd)


def _open_again(fd: int) -> None:
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    if flags & os.O_ACCMODE == os.O_WRONLY:
        return
    # shm_open(3) sets O_NOFOLLOW, and this path is a link.
    own_fd = os.open(f"/proc/self/fd/{fd}", flags & ~os.O_NOFOLLOW)
    try:
        os.lseek(own_fd, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(own_fd, fd, os.get_inheritable(fd))
    finally:
        os.close(own_fd)


def _descriptors() -> set[int]:
    names = os.listdir("/proc/self/fd")
    # Skip the descriptor of the listing itself, whose number the next file gets.
    return {int(name) for name in names if os.path.lexists(f"/proc/self/fd/{name}")}
