"""Arrays in named blocks of shared memory, for code that passes them by name.

Gristmill's own workers do not use these: their arrays are plain ndarrays that view
an anonymous mapping.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import mmap
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from gristmill._base.lazy_names import public_names
from gristmill.options import MultiprocessingOptions

if TYPE_CHECKING:
    from multiprocessing.pool import ThreadPool
    from multiprocessing.shared_memory import SharedMemory

__all__ = [
    "MultiprocessingOptions",
    "SharedMemoryArray",
    "SharedMemoryArrayMetadata",
]


@dataclasses.dataclass(slots=True, frozen=True)
class SharedMemoryArrayMetadata:
    """The location, shape and dtype of a `SharedMemoryArray`.

    Args:
        name: The name of the block of shared memory.
        shape: The shape of the array.
        dtype: The type of its items.

    Example:
        >>> array = SharedMemoryArray((2, 3), np.float32)
        >>> metadata = array.metadata  # Send it to another process.
        >>> same = SharedMemoryArray.from_metadata(metadata)
        >>> array[:] = 1
        >>> same.tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
        >>> metadata.close_and_unlink_shm()
    """

    name: str
    shape: Iterable[int]
    dtype: npt.DTypeLike

    def close_and_unlink_shm(self) -> None:
        """Remove the block; arrays that view it stay readable."""
        block = _attach(self.name)
        block.close()
        block.unlink()


class SharedMemoryArray(np.ndarray[Any, Any]):
    """An array in a named block of shared memory.

    Pickling it sends the name, so the process that unpickles it uses the same memory.
    The last user must call `unlink_on_del`, or else the block outlives all processes.

    Args:
        shape: The shape of the array, an int or several.
        dtype: The type of its items; not object.

    Raises:
        ValueError: The dtype has references to objects, or the shape is negative.

    Example:
        >>> array = SharedMemoryArray((2, 3), np.float32)
        >>> array[:] = 1
        >>> array.unlink_on_del()
    """

    shm: SharedMemory | None
    _unlink_on_del: bool

    _lock = threading.Lock()
    _del_thread_pool: ThreadPool | None = None
    _outstanding_del_requests: threading.Semaphore | None = None

    def __new__(
        cls, shape: int | Iterable[int], dtype: npt.DTypeLike = float
    ) -> SharedMemoryArray:
        """Make a new block; see the class."""
        from multiprocessing import shared_memory

        if isinstance(shape, (int, np.integer)):
            shape = (int(shape),)
        extents = tuple(shape)
        if any(extent < 0 for extent in extents):
            raise ValueError(f"shape must have extents of at least 0, got {extents}.")
        item_dtype = np.dtype(dtype)
        if item_dtype.hasobject:
            raise ValueError(
                f"dtype must not have Python objects, got {item_dtype}: other processes"
                " cannot use references to them. Use a dtype of numbers or bytes."
            )
        # A block cannot be empty.
        size = max(1, math.prod(extents) * item_dtype.itemsize)
        block = shared_memory.SharedMemory(create=True, size=size)
        return cls.from_shared_memory(block, extents, item_dtype)

    def __array_finalize__(self, obj: Any) -> None:
        block = getattr(obj, "shm", None)
        if block is not None and not np.may_share_memory(self, obj):
            block = None
        self.shm = block
        self._unlink_on_del = getattr(obj, "_unlink_on_del", False)

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Any:
        # Results computed from shared memory are not in shared memory.
        if array is self:
            return array
        return array[()] if return_scalar else array.view(np.ndarray)

    @classmethod
    def from_metadata(cls, metadata: SharedMemoryArrayMetadata) -> SharedMemoryArray:
        """Return the array that has `metadata`, in any process.

        Args:
            metadata: The `metadata` of an array in any process of this machine.

        Returns:
            An array of the same block of shared memory.

        Raises:
            FileNotFoundError: The block was removed.
        """
        return cls.from_shared_memory(
            _attach(metadata.name), metadata.shape, metadata.dtype
        )

    @property
    def metadata(self) -> SharedMemoryArrayMetadata:
        """The description with which another process can open this array.

        Raises:
            ValueError: This is a view of a part of the array, or a copy.
        """
        if self.shm is None or not self._owns_block():
            raise ValueError(
                "metadata needs a whole SharedMemoryArray, got a view or a copy. Use"
                " the metadata of the array that it was made from."
            )
        return SharedMemoryArrayMetadata(
            name=self.shm.name, shape=self.shape, dtype=self.dtype
        )

    @classmethod
    def from_shared_memory(
        cls, shm: SharedMemory, shape: Any, dtype: npt.DTypeLike
    ) -> SharedMemoryArray:
        """Return an array over a block; the array closes the block when it is freed.

        Args:
            shm: The block.
            shape: The shape of the array, an int or several.
            dtype: The type of its items.

        Returns:
            An array that views the block.

        Raises:
            TypeError: The block is smaller than the array.
        """
        array = super().__new__(cls, shape, dtype, buffer=shm.buf)
        array.shm = shm
        array._unlink_on_del = False
        return array

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        if self.shm is not None and self._owns_block():
            return self.from_shared_memory, (self.shm, self.shape, self.dtype)
        # A name and a shape do not describe a view, so send its items.
        return np.array(self, subok=False).__reduce_ex__(protocol)

    @classmethod
    def enable_async_del(
        cls, num_threads: int = 1, max_outstanding_requests: int = 50
    ) -> None:
        """Close blocks in background threads from now on.

        Args:
            num_threads: The number of threads, at least 1.
            max_outstanding_requests: The most blocks that may wait to be closed.  If
                more wait, the thread that frees an array closes its block.
        """
        from multiprocessing.pool import ThreadPool

        with SharedMemoryArray._lock:
            if SharedMemoryArray._del_thread_pool is None:
                SharedMemoryArray._del_thread_pool = ThreadPool(num_threads)
                SharedMemoryArray._outstanding_del_requests = threading.Semaphore(
                    max(max_outstanding_requests, num_threads)
                )

    @classmethod
    def _disable_async_del(cls) -> None:
        cls._del_thread_pool = None
        cls._outstanding_del_requests = None

    @classmethod
    def close_shm_async(cls, shm: SharedMemory, unlink: bool) -> None:
        """Close a block, and remove it if `unlink`; runs in a background thread.

        Args:
            shm: The block.
            unlink: Whether to remove the block.
        """
        try:
            _close(shm, unlink)
        finally:
            assert cls._outstanding_del_requests is not None
            cls._outstanding_del_requests.release()

    def unlink_on_del(self) -> None:
        """Remove the block when this array is freed."""
        self._unlink_on_del = True

    def _owns_block(self) -> bool:
        # The base of a view is this array, so this array is freed last and may close
        # the block.
        return isinstance(self.base, mmap.mmap)

    def __del__(self) -> None:
        block = getattr(self, "shm", None)
        if block is None or not self._owns_block():
            return
        pool = SharedMemoryArray._del_thread_pool
        free_requests = SharedMemoryArray._outstanding_del_requests
        if (
            pool is None
            or free_requests is None
            or not free_requests.acquire(blocking=False)
        ):
            _close(block, self._unlink_on_del)
            return
        pool.apply_async(
            SharedMemoryArray.close_shm_async, (block, self._unlink_on_del)
        )


def _attach(name: str) -> SharedMemory:
    from multiprocessing import shared_memory

    return shared_memory.SharedMemory(name)


def _close(block: SharedMemory, unlink: bool) -> None:
    block.close()
    if unlink:
        # Another process may have removed the name already.
        with contextlib.suppress(FileNotFoundError):
            block.unlink()


def __dir__() -> list[str]:
    return public_names(__all__)
