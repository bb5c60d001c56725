"""Implementation of sources.ParquetDataSource; needs the pyarrow package."""

from __future__ import annotations

import collections
import hashlib
import importlib.util
import operator
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from gristmill import _core
from gristmill._base import log
from gristmill._base.argument_checks import check_integer
from gristmill._base.closeable import Closeable
from gristmill._base.object_repr import FileSource, call_text
from gristmill._base.types import Alloc, Int64Array
from gristmill.errors import CorruptRecord
from gristmill.sources._columns import Columns, ColumnSource, Gathered, gather
from gristmill.sources._parquet_files import ParquetFiles, find_files
from gristmill.sources._remote_options import RemoteOptions

__all__ = ["ParquetDataSource"]

# Warn about a small cache after this many row groups were decoded again, if they had
# this many rows for each row that was read.
REPEATED_GROUPS = 16
REPEATED_ROWS = 4

# All sources of this process.
_in_use: weakref.WeakSet[ParquetDataSource] = weakref.WeakSet()


class ParquetDataSource(FileSource, Closeable, ColumnSource):
    """Serve the rows of Parquet files, in the order of the files.

    Args:
        paths: A file, a folder (its ``*.parquet``), a pattern such as
            ``data/**/*.parquet``, a URL that fsspec supports, or a list of these.
        columns: Names of the columns to read, in the order that rows have them. None
            reads all.
        cache_bytes: Bytes of decoded row groups to keep in each process. The most
            recently used ones are kept, and at least one.
        storage_options: Arguments of the file system of URLs, such as credentials.
            All paths must be URLs then.
        remote_options: How remote files are read. None for the defaults.
        **read_kwargs: Further arguments of ``pyarrow.parquet.ParquetFile``.

    Record ``i`` is a dict of ``{column: value}``: NumPy scalars, str, bytes, arrays for
    lists, dicts for structs, None or NaN if a value is missing.  The type of a column
    and the statistics of the files decide one dtype for all row groups, as
    docs/record-files.md lists.  Callers may change the arrays.

    A row group is decoded as a whole, so the order of reading decides the speed:
    `IndexSampler` without shuffle, and `samplers.GroupShuffleSampler` of
    ``source.groups``, decode each group about once.  ``cache_bytes`` must hold the
    sampler's window of row groups.  Each process keeps the 16 most recently read files
    open.

    If there are 32 or more files, all of them local, and no ``read_kwargs``, their
    footers are cached in the folder of the environment variable ``GRISTMILL_CACHE_DIR``
    (by default ``~/.cache/gristmill``).  The next program then opens a thousand files
    in less than 0.1 s.  A file whose size or modification time differs is read again.

    If `Batch` is the first operation, it takes columns without making rows; see
    `columns_at`.  Columns of numbers and times are fast then.  Other columns are
    stacked value by value.

    Raises:
        FileNotFoundError: A file is missing, or a folder or pattern has none.
        CorruptRecord: A file is not a Parquet file, is damaged, or changed while in
            use.  Raised by the constructor, or when the file is read.
        ValueError: `paths` is empty, a column is missing or differs between files, or
            there are storage_options for a path that is not a URL.
        RemoteError: A remote file cannot be read.
        ImportError: pyarrow, or fsspec for a URL, is not installed.

    Example:
        >>> import os, pyarrow, pyarrow.parquet, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "part.parquet")
        >>> table = pyarrow.table({"x": [1, 2, 3], "name": ["a", "b", "c"]})
        >>> pyarrow.parquet.write_table(table, path, row_group_size=2)
        >>> source = ParquetDataSource(path)
        >>> len(source), source.groups.tolist(), source[2]
        (3, [2, 1], {'x': np.int64(3), 'name': 'c'})
        >>> folder.cleanup()
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.

    # Threads that read ahead would evict row groups from a cache that holds one window.
    allows_threads = False

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        columns: Sequence[str] | None = None,
        *,
        cache_bytes: int = 1 << 30,
        storage_options: Mapping[str, Any] | None = None,
        remote_options: RemoteOptions | None = None,
        **read_kwargs: Any,
    ) -> None:
        if importlib.util.find_spec("pyarrow") is None:
            raise ImportError(
                "sources.ParquetDataSource needs the pyarrow package. Install it with:"
                " pip install 'gristmill[parquet]'"
            )
        check_integer("cache_bytes", cache_bytes)
        if cache_bytes < 0:
            raise ValueError(f"cache_bytes must be at least 0, got {cache_bytes}.")
        self._cache_bytes = operator.index(cache_bytes)
        self._read_kwargs = read_kwargs
        options = storage_options or {}
        self._files = ParquetFiles(
            find_files(paths, options),
            columns,
            storage_options=options,
            remote_options=remote_options,
            read_kwargs=read_kwargs,
        )
        self._repr = ""
        self._begin()

    def _begin(self) -> None:
        """Create the state that each process has for itself.

        The lock guards the caches, the counts of repeats and the open files of
        `_files`.  `_rows_read` is not guarded, because it only decides when to warn.
        """
        # The number of each row group's first row, then the number of all rows.
        self._bounds = np.concatenate([[0], np.cumsum(self._files.rows)])
        self._length = int(self._bounds[-1])
        # Held while a row group is decoded: other threads may need the same one.
        self._lock = threading.Lock()
        _in_use.add(self)
        # Decoded row groups, the most recently used one last.
        self._cache: collections.OrderedDict[int, Columns] = collections.OrderedDict()
        self._cached_bytes = 0
        # By row group: whether it was decoded, so that decoding it now is a repetition.
        self._decoded_before = np.zeros(len(self.groups), np.bool_)
        self._repeated_groups = self._repeated_rows = self._rows_read = 0
        self._warned = False
        self._damaged: dict[int, str] = {}  # Error texts by row group.

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, in order."""
        return self._files.paths

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a row."""
        return self._files.columns

    @property
    def groups(self) -> Int64Array:
        """Number of rows of each row group, in order, int64 of shape (G,)."""
        return self._files.rows

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, record_key: SupportsIndex) -> dict[str, Any]:
        key = operator.index(record_key)
        if not 0 <= key < self._length:
            raise self._out_of_range(key)
        group = int(self._bounds.searchsorted(key, "right")) - 1
        self._rows_read += 1
        return self._cached_group(group).row(key - int(self._bounds[group]))

    def __getitems__(self, record_keys: Sequence[int]) -> list[dict[str, Any]]:
        """Return several records; each row group is looked up only once."""
        if len(record_keys) == 1:
            return [self[record_keys[0]]]
        keys = np.asarray(record_keys, np.int64)
        if keys.size and (keys.min() < 0 or keys.max() >= self._length):
            bad = keys[(keys < 0) | (keys >= self._length)]
            raise self._out_of_range(int(bad[0]))
        groups = self._bounds.searchsorted(keys, "right") - 1
        order_by_group = np.argsort(groups, kind="stable")
        group_starts = np.flatnonzero(np.diff(groups[order_by_group])) + 1
        parts = np.split(order_by_group, group_starts) if keys.size else []
        # In the order of the keys, so that the last groups stay in the cache.
        parts.sort(key=operator.itemgetter(0))
        self._rows_read += len(keys)
        records: list[Any] = [None] * len(keys)
        for numbers in parts:
            group = int(groups[numbers[0]])
            rows = self._cached_group(group).rows(keys[numbers] - self._bounds[group])
            for number, row in zip(numbers.tolist(), rows, strict=True):
                records[number] = row
        return records

    def columns_at(
        self, keys: Int64Array, alloc: Alloc | None = None
    ) -> dict[str, Gathered]:
        """Return the columns of several records, for batches, without making rows.

        Args:
            keys: Record keys, int64 of shape (B,).
            alloc: Allocates the arrays. None: NumPy allocates them.

        Returns:
            For each column an array of shape (B,), or a list of its B values if they
            must be stacked.

        Raises:
            IndexError: A key is out of range.
            CorruptRecord: A row group is damaged.
        """
        groups, chunk_numbers, offsets = _core.find_chunks(self._bounds, keys)
        chunks: list[Columns] = []
        used_bytes = 0
        for chunk_number, group in enumerate(groups.tolist()):
            columns = self._cached_group(group, by_rows=True)
            used_bytes += columns.nbytes
            if used_bytes > self._cache_bytes and len(groups) > 1:
                # Keep only the needed rows, because the cache may evict the group.
                rows = np.flatnonzero(chunk_numbers == chunk_number)
                columns = columns.take(offsets[rows])
                offsets[rows] = np.arange(len(rows))
            chunks.append(columns)
        self._rows_read += len(keys)
        return gather(chunks, chunk_numbers, offsets, alloc)

    def close(self) -> None:
        """Drop the decoded row groups and close the files; reading opens them again."""
        with self._lock:
            self._cache.clear()
            self._cached_bytes = 0
            self._damaged.clear()
            self._files.close()

    def _text_with_paths(self) -> str:
        facts = {"rows": self._length, "columns": list(self.columns)}
        return call_text(self, paths=[*self.paths[:7]], **facts)

    def __repr__(self) -> str:
        # Every state contains it, so ten thousand paths are hashed only once.
        self._repr = self._repr or self._text_without_paths()
        return self._repr

    def _text_without_paths(self) -> str:
        names = "\n".join(self.paths).encode()
        options = "".join(f", {n}={v!r}" for n, v in sorted(self._read_kwargs.items()))
        return (
            f"ParquetDataSource(hash_of_paths={hashlib.sha256(names).hexdigest()[:16]},"
            f" rows={self._length}, columns={list(self.columns)}{options})"
        )

    def __getstate__(self) -> dict[str, Any]:
        names = ("_cache_bytes", "_read_kwargs", "_files", "_repr")
        return {name: vars(self)[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def _cached_group(self, group: int, by_rows: bool = False) -> Columns:
        """Return a decoded row group; `by_rows` also makes the table of its rows.

        Threads read the result without the lock.
        """
        with self._lock:
            columns = self._cache.get(group)
            if columns is None:
                columns = self._cache[group] = self._decode(group)
                self._cached_bytes += columns.nbytes
                while self._cached_bytes > self._cache_bytes and len(self._cache) > 1:
                    _, oldest = self._cache.popitem(last=False)
                    self._cached_bytes -= oldest.nbytes
            else:
                self._cache.move_to_end(group)
            if by_rows and columns.plain:
                # Now, while the processor's caches hold the decoded values.
                columns.table()
            return columns

    def _decode(self, group: int) -> Columns:
        if group in self._damaged:
            raise CorruptRecord(self._damaged[group])
        try:
            columns = self._files.read(group)
        except CorruptRecord as error:
            # Later requests for rows of this group fail immediately.
            self._damaged[group] = str(error)
            raise
        if self._decoded_before[group]:
            self._repeated_groups += 1
            self._repeated_rows += int(self.groups[group])
            self._warn_of_repeats(columns.nbytes)
        self._decoded_before[group] = True
        return columns

    def _warn_of_repeats(self, group_bytes: int) -> None:
        """Warn once if the cache is too small for groups of about `group_bytes`."""
        is_often = self._repeated_rows > REPEATED_ROWS * self._rows_read
        if self._warned or self._repeated_groups < REPEATED_GROUPS or not is_often:
            return
        self._warned = True
        log.warning(
            "%r decoded %d rows again to return %d rows: its cache of %d bytes is too"
            " small for the order of reading, because a row group takes about %d bytes."
            " Raise cache_bytes, or read in the order of a samplers.GroupShuffleSampler"
            " of source.groups with a smaller window.",
            self,
            self._repeated_rows,
            self._rows_read,
            self._cache_bytes,
            group_bytes,
        )

    def _out_of_range(self, key: int) -> IndexError:
        return IndexError(f"Index {key} out of range for {self._length}")


def _unlock_in_child() -> None:
    """Replace the locks of a forked child, which threads of the parent may hold."""
    for source in _in_use:
        source._lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock_in_child)
