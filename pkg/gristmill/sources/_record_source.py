"""Base class of the sources of record files, which use a native reader."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, SupportsIndex

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.closeable import Closeable
from gristmill._base.object_repr import FileSource, call_text
from gristmill._base.types import Int64Array, T
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._record_files import FAR_THREADS, LOCAL_THREADS, in_threads
from gristmill.sources._urls import is_local

ITER_BLOCK = 256  # Records that `__iter__` reads at once.


class RecordSource(FileSource, Closeable, Generic[T]):
    """Serve the records of several files as one list; the base of several sources.

    An element is the bytes of a record, unless the class defines `_to_element`, or sets
    `_dtype` before it calls `__init__`.  Then elements are read-only arrays of it.

    `ranges` are the first record and number of records of each file. `open_part`
    returns the reader of a file by its number; it is picklable and does not refer to
    the source. `open_readers` are the readers that are already open, by number.
    """

    # Returns an element from a record's key and its bytes.
    _to_element: Callable[[int, bytes], T] | None = None
    _dtype: np.dtype[Any] | None = None

    # Parts of the `repr`: the class name, and the separator of the hashed paths.
    _class_name: str
    _separator = "\n"
    _repr = ""

    def __init__(
        self,
        paths: FilePaths,
        ranges: Sequence[tuple[int, int]],
        open_part: Callable[[int], _core.RecordReader],
        open_readers: Mapping[int, _core.RecordReader],
    ) -> None:
        self._paths = paths
        others = "" if len(paths) == 1 else f" and {len(paths) - 1} more"
        self._name = f"{paths[0]}{others}"
        self._open_part = open_part
        self._reader = self._new_reader(ranges)
        self._ranges: Int64Array = np.array(ranges, np.int64)
        self._length = len(self._reader)
        for part, file in open_readers.items():
            self._reader.open_part(part, file)

    @property
    def paths(self) -> list[str]:
        """The paths of the files, without their ``[start:end]`` parts."""
        return [*self._paths]

    @property
    def reader(self) -> _core.RecordSet:
        """The native reader of all records; it opens files when they are read."""
        return self._reader

    @property
    def is_far(self) -> bool:
        """True if any file is read over a network."""
        return not all(map(is_local, self._paths))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, record_key: SupportsIndex) -> T:
        key = operator.index(record_key)
        if not 0 <= key < self._length:
            raise self._out_of_range(key)
        record: Any = self._reader.read(key)
        return record if self._to_element is None else self._to_element(key, record)

    def __getitems__(self, record_keys: Sequence[SupportsIndex]) -> list[T]:
        return self.read_block(self._check_keys(record_keys))

    def read_block(self, keys: Int64Array) -> list[T]:
        """Return the elements of keys in [0, len), shape (k,).

        Args:
            keys: Record keys in [0, len), int64 of shape (k,).

        Returns:
            The k elements, in the order of `keys`.

        Raises:
            OSError: A file cannot be read.
            CorruptRecord: A record is damaged.
        """
        return self.elements(keys, self._reader.read_many(keys))

    def elements(self, keys: Int64Array, records: list[Any]) -> list[T]:
        """Return the elements of `records`, which `reader` returned for `keys`.

        Args:
            keys: Record keys, int64 of shape (k,).
            records: The k records: ``bytes``, or arrays if the source has a dtype.

        Returns:
            The k elements.
        """
        if self._to_element is None:
            return records
        return list(map(self._to_element, keys.tolist(), records))

    @property
    def serves_bytes(self) -> bool:
        """True if elements are the bytes of records."""
        return self._to_element is None and self._dtype is None

    @property
    def item_bytes(self) -> int:
        """The bytes of an item of a record: of a number if records are arrays, else 1.

        The reader's records have a length in items.
        """
        return 1 if self._dtype is None else self._dtype.itemsize

    def __iter__(self) -> Iterator[T]:
        for first in range(0, self._length, ITER_BLOCK):
            last = min(first + ITER_BLOCK, self._length)
            yield from self.read_block(np.arange(first, last))

    def sizes(
        self, record_keys: Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]
    ) -> Int64Array:
        """Return the sizes of records in bytes.

        Args:
            record_keys: Numbers in [0, len), shape (k,).

        Returns:
            int64, shape (k,).  No record is read if the file's index has the place of
            every record.

        Raises:
            ValueError: A key is out of range.
        """
        return self._reader.sizes(self._check_keys(record_keys))

    def close(self) -> None:
        """Close the files.  Reading opens them again."""
        self._reader.close()

    def __repr__(self) -> str:
        # Only of paths, like Grain's. Every state contains it, so it is cached.
        if not self._repr:
            import hashlib  # Slow to import.

            text = self._separator.join(self._paths).encode()
            sha1 = hashlib.sha1(text, usedforsecurity=False)
            self._repr = f"{self._class_name}(hash_of_paths={sha1.hexdigest()})"
        return self._repr

    def _text_with_paths(self) -> str:
        return call_text(self, paths=[*self._paths[:7]], records=self._length)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        # The files are opened again after unpickling.
        del state["_reader"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reader = self._new_reader(np.asarray(self._ranges).tolist())

    def _new_reader(self, ranges: Sequence[tuple[int, int]]) -> _core.RecordSet:
        # The reader must not refer to the source, which refers to the reader.
        threads = FAR_THREADS if self.is_far else LOCAL_THREADS
        opener = functools.partial(in_threads, self._open_part, threads=threads)
        return _core.RecordSet(self._name, ranges, opener, self._dtype)

    def _check_keys(self, record_keys: Any) -> Int64Array:
        if isinstance(record_keys, np.ndarray) and record_keys.dtype == np.int64:
            keys: npt.NDArray[Any] = record_keys
        else:
            # As objects, because a number beyond int64 is out of range, too.
            keys = np.array([operator.index(key) for key in record_keys], object)
        bad = keys[(keys < 0) | (keys >= self._length)]
        if bad.size:
            raise self._out_of_range(int(bad[0]))
        return np.ascontiguousarray(keys, np.int64)

    def _out_of_range(self, key: int) -> ValueError:
        return ValueError(
            f"Record key should be in [0, num_records), got {key} for the"
            f" {self._length} records of {self._name}"
        )


def is_far(source: Any) -> bool:
    """Return whether records should be requested long before they are needed."""
    return reads_natively(source) and bool(source.is_far)


def reads_natively(source: Any) -> bool:
    """Return whether ``source[key]`` is made only from what ``source.reader`` reads."""
    return (
        isinstance(source, RecordSource)
        and type(source).__getitem__ is RecordSource.__getitem__
        and type(source).__getitems__ is RecordSource.__getitems__
    )
