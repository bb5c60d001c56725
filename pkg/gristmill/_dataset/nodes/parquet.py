"""A dataset of the rows of Parquet files; needs the pyarrow package."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gristmill._base.argument_checks import check_instance
from gristmill._base.object_repr import call_text
from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import CheckedIterator, DatasetIterator
from gristmill._dataset.nodes.interleave import InterleaveIterDataset
from gristmill._hot import iterators
from gristmill.sources._columns import Columns
from gristmill.sources._parquet_files import ParquetFiles

# The number of files that are read in turn.
CYCLE_LENGTH = 16
# The most rows that are converted to dicts at once.
ROWS_AT_ONCE = 256


class ParquetIterDataset(IterDataset[dict[str, Any]]):
    """The rows of Parquet files, from first to last: dicts of ``{column: value}``.

    Args:
        path: A file or several files. Of several, 16 at a time are read in turn.
        **read_kwargs: Other arguments of ``pyarrow.parquet.ParquetFile``.

    Values are NumPy scalars, str, bytes, arrays for lists, dicts for structs, and None
    or NaN if they are missing.  A column has one dtype in a file, see
    docs/record-files.md.  To read rows by number, use `sources.ParquetDataSource`.

    Raises:
        ImportError: pyarrow is not installed.
        FileNotFoundError: In ``iter(ds)`` or while iterating: a file is missing.
        CorruptRecord: In ``iter(ds)`` or while iterating: a file is damaged or not a
            Parquet file.

    Example:
        >>> import pathlib, pyarrow, pyarrow.parquet, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "part.parquet")
        >>> pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2]}), file)
        >>> list(gristmill.experimental.ParquetIterDataset(str(file)))
        [{'x': np.int64(1)}, {'x': np.int64(2)}]
    """

    def __init__(
        self, path: str | os.PathLike[str] | Sequence[Any], **read_kwargs: Any
    ) -> None:
        super().__init__()
        if importlib.util.find_spec("pyarrow") is None:
            raise ImportError(
                "experimental.ParquetIterDataset needs the pyarrow package. Install it"
                " with: pip install 'gristmill[parquet]'"
            )
        is_single = isinstance(path, (str, bytes, os.PathLike))
        paths: Any = [path] if is_single else path
        check_instance("path", paths, Iterable, "a file or a sequence of files")
        self._paths: list[Any] = list(paths)
        self._read_kwargs = read_kwargs

    def __iter__(self) -> DatasetIterator[dict[str, Any]]:
        if len(self._paths) == 1:
            path = os.fsdecode(self._paths[0])
            return ParquetDatasetIterator(path, self._read_kwargs)
        return iter(self._interleaving())

    def _interleaving(self) -> InterleaveIterDataset[dict[str, Any]]:
        files = [ParquetIterDataset(path, **self._read_kwargs) for path in self._paths]
        return InterleaveIterDataset(files, cycle_length=CYCLE_LENGTH)

    def as_interleaving(self) -> InterleaveIterDataset[dict[str, Any]] | None:
        """Return a dataset that reads the files in turn, or None for one file."""
        return self._interleaving() if len(self._paths) > 1 else None

    def __repr__(self) -> str:
        return call_text(self, *self._paths, **self._read_kwargs)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep some of the files, so that workers share them.

        Args:
            sl: The slice to keep.
            sequential_slice: Has no effect.
        """
        self._paths = self._paths[sl]


class ParquetDatasetIterator(iterators.BlockFeeder, CheckedIterator[dict[str, Any]]):
    """Iterates over the rows of a Parquet file, one row group in memory at a time.

    The compiled `BlockFeeder` defines ``__next__``, which calls `_refill`, and
    `position`, the number of rows returned.
    """

    _STATE = states.fields(row_group=states.count, index_within_row_group=states.count)

    def __init__(self, path: str, read_kwargs: dict[str, Any]) -> None:
        iterators.BlockFeeder.__init__(self, keep_absent=True)
        self._file = ParquetFiles(
            [path],
            None,
            storage_options={},
            remote_options=None,
            read_kwargs=read_kwargs,
        )
        # The number of the first row of each row group, and the number of all rows.
        self._bounds = np.concatenate([[0], np.cumsum(self._file.rows)])
        # The row group in memory, and its columns; -1 and None: no group is in memory.
        self._group = -1
        self._columns: Columns | None = None
        DatasetIterator.__init__(self)

    def get_state(self) -> Any:
        """Return the row group of the last returned row, and the row after it."""
        group = max(int(self._bounds.searchsorted(self.position, "left")) - 1, 0)
        return {
            "row_group": group,
            "index_within_row_group": self.position - int(self._bounds[group]),
        }

    def _check_state(self, state: Any) -> None:
        super()._check_state(state)
        group, row = state["row_group"], state["index_within_row_group"]
        bounds = self._bounds
        if group >= len(bounds) or bounds[group] + row > bounds[-1]:
            raise states.mismatch(
                self,
                f"is of row {row} of row group {group}, but the file has"
                f" {bounds[-1]} rows in {len(bounds) - 1} row groups",
            )

    def _go_to(self, state: Any) -> None:
        first = int(self._bounds[state["row_group"]])
        self.seek(first + state["index_within_row_group"])

    def _release(self) -> None:
        self._columns = None
        self._group = -1
        self.seek(self.position)

    def _refill(self, first: int) -> list[Any]:
        """Return the next rows of the row group that contains row `first`."""
        self._assert_not_closed()
        if first >= self._bounds[-1]:
            return []
        group = int(self._bounds.searchsorted(first, "right")) - 1
        if group != self._group or self._columns is None:
            self._columns = None  # Free it before decoding the next one.
            self._columns, self._group = self._file.read(group), group
        start = int(self._bounds[group])
        end = min(first + ROWS_AT_ONCE, int(self._bounds[group + 1]))
        return self._columns.rows(np.arange(first - start, end - start))
