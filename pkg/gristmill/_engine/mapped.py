"""Sends arrays that view a mapped file by the file's name.

`np.load(path, mmap_mode="r")` and `np.memmap` are for tables that are larger than
memory: a worker maps the same bytes of the same file instead of getting a copy.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# In its other mode, "c", changes belong to one process: those are sent as bytes.
SHARED_MODES = ("r", "r+", "w+")


def reduce_mapped(array: Array) -> tuple[Any, ...] | None:
    """How to pickle an array that views a mapped file; None for all others."""
    owner = _owner(array)
    plain = array.size and min(array.strides, default=0) >= 0
    if owner is None or not plain or array.dtype.hasobject:
        return None
    path = os.path.abspath(owner.filename or "")
    try:
        version = _version(path)
    except OSError:
        return None
    mapping: Any = owner._mmap  # type: ignore[attr-defined]
    # NumPy maps from the start of the page in which the array begins.
    first = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY
    offset = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    writeable = array.flags.writeable
    place = (path, version, first + offset, writeable)
    return open_mapped, (place, array.shape, array.dtype, array.strides)


def open_mapped(
    place: tuple[str, tuple[int, ...], int, bool],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...],
) -> Array:
    """The array again.  Where it was writeable, writes stay in this process.

    Raises:
        OSError: The file is gone.
        ValueError: Another file has its name, or its size has changed.
    """
    path, version, offset, writeable = place
    if _version(path) != version:
        raise ValueError(
            f"{path} is not the file any more that the data source had mapped: "
            "(device, inode, bytes) were "
            f"{version} and are {_version(path)}. Keep a file in place while a "
            "loader reads it."
        )
    spans = zip(shape, strides, strict=True)
    size = dtype.itemsize + sum((n - 1) * stride for n, stride in spans)
    mode: Any = "c" if writeable else "r"
    memory = np.memmap(path, np.uint8, mode, offset, (size,))
    return np.ndarray(shape, dtype, memory.data, 0, strides)


def _owner(array: Array) -> np.memmap[Any, Any] | None:
    """The array that was mapped, where `array` is a view of one."""
    view: Any = array
    while isinstance(view, np.ndarray):
        base: Any = view.base
        if isinstance(view, np.memmap) and isinstance(base, mmap.mmap):
            return view if view.filename and view.mode in SHARED_MODES else None
        view = base
    return None


def _version(path: str) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size
