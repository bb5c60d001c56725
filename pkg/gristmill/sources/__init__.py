"""Where records come from: anything with ``__len__`` and ``__getitem__``.

Lists, tuples and your own classes are read one record at a time.  A NumPy array, a dict
of equally long ones, and a pyarrow Table of numbers are read natively, in blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Protocol,
    SupportsIndex,
    TypeAlias,
    runtime_checkable,
)

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.checks import check_finite, kind
from gristmill._base.listing import lazily, listed, places_of
from gristmill._base.types import Alloc, Int64Array, Rules, T
from gristmill.sources._checks import check_readable
from gristmill.sources._columns import ColumnSource, Gathered, writable_rows

if TYPE_CHECKING:
    from gristmill.sources._array_record import (
        ArrayRecordDataSource as ArrayRecordDataSource,
    )
    from gristmill.sources._bag import BagDataSource as BagDataSource
    from gristmill.sources._folder import FolderDataSource as FolderDataSource
    from gristmill.sources._parquet import ParquetDataSource as ParquetDataSource
    from gristmill.sources._remote_options import RemoteOptions as RemoteOptions
    from gristmill.sources._shared_list import (
        SharedMemoryDataSource as SharedMemoryDataSource,
    )
    from gristmill.sources._tar import TarDataSource as TarDataSource
    from gristmill.sources._tf_record import TFRecordDataSource as TFRecordDataSource
    from gristmill.sources._tf_record_stream import TFRecordPosition as TFRecordPosition
    from gristmill.sources._tf_record_stream import TFRecordStream as TFRecordStream
    from gristmill.sources._tf_record_stream import read_tf_records as read_tf_records
    from gristmill.sources._tfds import TFDSDataSource as TFDSDataSource

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]


@runtime_checkable
class RandomAccessDataSource(Protocol[T]):
    """What a loader reads: records by number, from 0 to ``len(source) - 1``.

    If it turns out to have fewer, ``__getitem__`` raises StopIteration: the stream that
    asked ends there.  Any other exception is an error.

    Give it a ``__repr__`` that says which data it reads, because saved states are
    compared by it, and make it picklable to use worker processes.

    Example:
        >>> class Squares:
        ...     def __len__(self):
        ...         return 4
        ...     def __getitem__(self, index):
        ...         return int(index) ** 2
        >>> list(gristmill.load(Squares(), num_epochs=1))
        [0, 1, 4, 9]
    """

    def __len__(self) -> int:
        """Return the number of records."""

    def __getitem__(self, index: int, /) -> T:
        """Return one record."""


class RangeDataSource:
    """Serve the integers of ``range(start, stop, step)``.

    Args:
        start: The first record.
        stop: Where to end; not included.
        step: Distance between records, not 0.

    Raises:
        AssertionError: `step` is 0, or leads away from `stop`.

    Example:
        >>> list(RangeDataSource(start=1, stop=8, step=3))
        [1, 4, 7]
    """

    def __init__(self, start: int, stop: int, step: int) -> None:
        for name, value in (("start", start), ("stop", stop), ("step", step)):
            check_finite(name, value)
        if step == 0:
            raise AssertionError("step can't be zero.")
        self._start = start
        self._stop = stop
        self._step = step
        # Rounded up, in integers: floats would miscount past 2**53.
        self._len = int(-((start - stop) // step))
        if self._len < 0:
            raise AssertionError("length can't be negative.")

    def __len__(self) -> int:
        return self._len

    def __getitem__(self, record_key: SupportsIndex) -> int:
        key = record_key.__index__()
        if not 0 <= key < self._len:
            raise IndexError(f"Index {key} out of range for {self._len}")
        return self._start + key * self._step

    def __repr__(self) -> str:
        given = f"start={self._start}, stop={self._stop}, step={self._step}"
        return f"RangeDataSource({given})"


class TableSource(ColumnSource):
    """Serve the rows of an array, or of a dict of equally long arrays.

    A loader that is given such an array or dict makes one of these itself.

    Args:
        columns: An array of shape ``(N, *S)``, or a dict of such with one ``N``.

    Record ``i`` is ``array[i]``, or the dict of ``{name: array[i]}``.  If an array in
    memory is read-only, records have copies of its rows, so that all can be written to.

    Raises:
        TypeError: A column is not an array.
        ValueError: There is no column, one has no rows axis, or they differ in
            length.

    Example:
        >>> table = TableSource({"x": np.zeros((3, 2)), "y": np.arange(3)})
        >>> len(table), table[2]["y"].item()
        (3, 2)
    """

    def __init__(self, columns: npt.NDArray[Any] | Columns) -> None:
        self._single = not isinstance(columns, Mapping)
        given: Columns = columns if isinstance(columns, Mapping) else {"": columns}
        self._length = _common_length(given, self._single)
        # Rows are ordinary arrays, in workers and without, also where these are mapped.
        self._columns = {
            name: np.asarray(column) if isinstance(column, np.memmap) else column
            for name, column in given.items()
        }
        self._by_row = {name: writable_rows(column) for name, column in given.items()}

    @property
    def gathers(self) -> bool:
        """Whether `gather` gives what stacking the rows would give.

        It does not for objects, records and foreign byte orders, which NumPy
        converts when it stacks rows, nor for single strings, which it makes as wide
        as the longest one of a batch.
        """
        return all(map(_gathers, self._columns.values()))

    @property
    def contiguous(self) -> bool:
        """Whether the rows of every column follow one another in memory."""
        return all(c.flags.c_contiguous for c in self._columns.values())

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, all columns together."""
        return sum(c.nbytes for c in self._columns.values()) // max(1, self._length)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if self._single:
            return self._by_row[""][index]
        return {name: column[index] for name, column in self._by_row.items()}

    def gather(
        self, rows: Int64Array, alloc: Alloc | None = None, rules: Rules = "plain"
    ) -> Any:
        """Return a batch of rows, an array or a dict of arrays.

        Args:
            rows: Row numbers in [0, len), int64 of shape (B,).
            alloc: Makes the arrays of the batch. None leaves them to NumPy.
            rules: "jax" gives a dict with its names sorted, as stacking rows by
                jax's rules does; "plain" keeps the table's order.

        Returns:
            Arrays of shape ``(B, *S)``, alone or in a dict.

        Raises:
            IndexError: A row is out of range.
        """
        if self._single:
            return _gather(self._columns[""], rows, alloc)
        return self._each(lambda column: _gather(column, rows, alloc), rules)

    @property
    def columns_are_rows(self) -> bool:
        """Whether `columns_at` is to be asked: not where a row is an object."""
        return super().columns_are_rows and (self.gathers or not self._single)

    def columns_at(self, keys: Int64Array, alloc: Alloc | None = None) -> Any:
        """Return the columns of several rows, where not all of them are gathered.

        Args:
            keys: Row numbers in [0, len), int64 of shape (B,).
            alloc: Makes arrays of the batch. None leaves them to NumPy.

        Returns:
            An array of shape ``(B, *S)``, or a dict of these, with the list of the B
            leaves in place of a column that NumPy makes something else of when it
            stacks them.

        Raises:
            IndexError: A row is out of range.
        """

        def column_of(column: npt.NDArray[Any]) -> Gathered:
            if _gathers(column):
                return _gather(column, keys, alloc)
            return [column[key] for key in keys.tolist()]

        if self._single:
            return _gather(self._columns[""], keys, alloc)
        return {name: column_of(column) for name, column in self._columns.items()}

    def begin_gather(
        self,
        rows: Int64Array,
        pool: _core.Pool,
        alloc: Alloc | None = None,
        rules: Rules = "plain",
    ) -> tuple[Any, list[_core.PendingGather]]:
        """Begin to `gather` with the threads of a pool.

        Returns:
            The batch, which is filled once each item of the list has been waited
            for. Only for tables that are `contiguous`.
        """
        pending: list[_core.PendingGather] = []

        def begin(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
            out = _empty_batch(column, len(rows), alloc)
            pending.append(_core.PendingGather(pool, column, rows, out))
            return out

        return self._each(begin, rules), pending

    def _each(
        self, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], rules: Rules
    ) -> Any:
        if self._single:
            return function(self._columns[""])
        names = sorted(self._columns) if rules == "jax" else self._columns
        return {name: function(self._columns[name]) for name in names}

    def __repr__(self) -> str:
        if self._single:
            return f"TableSource({_kind_of(self._columns[''])})"
        kinds = ", ".join(f"{n!r}: {_kind_of(c)}" for n, c in self._columns.items())
        return f"TableSource({{{kinds}}})"


def as_source(data_source: Any) -> Any:
    """Return what a loader reads for its argument `data_source`.

    That is what `as_table` returns, once it is known to be readable and not empty.
    """
    source = as_table(data_source)
    check_readable(source)
    if known_length(source) == 0:
        raise ValueError(
            f"data_source, a {kind(source)}, has 0 records, but number of records must"
            " be greater than 0. Check the path or the filter it was made from."
        )
    return source


def as_table(source: Any) -> Any:
    """Return a source of the rows of arrays, dicts of arrays and tables of pyarrow.

    They are not copied.  Anything else is returned as it is.
    """
    if _is_table(source):
        return TableSource(source)
    pyarrow = sys.modules.get("pyarrow")  # Not imported to find out.
    if pyarrow is None or not isinstance(source, (pyarrow.Table, pyarrow.RecordBatch)):
        return source
    from gristmill.sources import _arrow

    arrays = _arrow.as_arrays(source)
    return _arrow.ArrowSource(source) if arrays is None else TableSource(arrays)


def as_columns(source: Any) -> ColumnSource | None:
    """Return what gathers batches of a source's records by column, None if nothing."""
    if isinstance(source, ColumnSource):
        return source if source.columns_are_rows else None
    datasets = sys.modules.get("datasets")  # Not imported to find out.
    if datasets is None or type(source) is not getattr(datasets, "Dataset", None):
        return None
    from gristmill.sources import _hugging_face

    return _hugging_face.HuggingFaceColumns(source)


def known_length(source: Any) -> int | None:
    """Return ``len(source)``, or None where it has no length or does not know it.

    Record keys then go to the source as they are; others are taken modulo its length.
    """
    try:
        return len(source)
    except TypeError:
        return None


def _is_table(source: Any) -> bool:
    if isinstance(source, np.ndarray):
        # Rows of other subclasses mean something that their bytes do not say.
        return type(source) in (np.ndarray, np.memmap)
    return type(source) is dict and any(
        isinstance(column, np.ndarray) for column in source.values()
    )


def _common_length(columns: Columns, single: bool) -> int:
    if not columns:
        raise ValueError("data_source is an empty dict. Pass at least one array.")
    lengths: dict[str, int] = {}
    for name, column in columns.items():
        what = "data_source" if single else f"data_source[{name!r}]"
        if not isinstance(column, np.ndarray):
            raise TypeError(
                f"{what} is a {type(column).__name__}, but every value of a dict of"
                " arrays must be a NumPy array. Convert it with np.asarray."
            )
        if column.ndim == 0:
            raise ValueError(
                f"{what} has shape (), but needs a first axis to count records by."
            )
        lengths[what] = len(column)
        first, length = next(iter(lengths.items()))
        if len(column) != length:
            raise ValueError(
                f"{what} has {len(column)} rows, but {first} has {length}."
                " All arrays of a data source must have one length."
            )
    return length


def _gathers(column: npt.NDArray[Any]) -> bool:
    return (
        column.dtype.isnative
        and not column.dtype.hasobject
        and column.dtype.names is None
        and not (column.ndim == 1 and column.dtype.kind in "US")
    )


def _gather(
    column: npt.NDArray[Any], rows: Int64Array, alloc: Alloc | None
) -> npt.NDArray[Any]:
    out = _empty_batch(column, len(rows), alloc)
    if column.flags.c_contiguous and not column.dtype.hasobject:
        _core.gather(column, rows, out)
    else:
        if rows.size and rows.min() < 0:
            raise IndexError(f"row {rows.min()} is out of range for {len(column)} rows")
        np.take(column, rows, axis=0, out=out)
    return out


def _empty_batch(
    column: npt.NDArray[Any], rows: int, alloc: Alloc | None
) -> npt.NDArray[Any]:
    shape = (rows, *column.shape[1:])
    if alloc is None or column.dtype.hasobject:
        return np.empty(shape, column.dtype)
    return alloc(shape, column.dtype)


def _kind_of(column: npt.NDArray[Any]) -> str:
    return f"{column.dtype}[{','.join(map(str, column.shape))}]"


# Names that are here from the start.
_HERE = "RandomAccessDataSource RangeDataSource TableSource"
# Names whose modules are not needed by most.
_HOMES = {
    "sources._array_record": "ArrayRecordDataSource",
    "sources._bag": "BagDataSource",
    "sources._folder": "FolderDataSource",
    "sources._parquet": "ParquetDataSource",
    "sources._remote_options": "RemoteOptions",
    "sources._shared_list": "SharedMemoryDataSource",
    "sources._tar": "TarDataSource",
    "sources._tf_record": "TFRecordDataSource",
    "sources._tf_record_stream": "TFRecordPosition TFRecordStream read_tf_records",
    "sources._tfds": "TFDSDataSource",
}


# Type checkers must not see it: they would accept every name.
if not TYPE_CHECKING:
    __getattr__ = lazily(__name__, _HOMES)
    __all__ = sorted({*_HERE.split(), *places_of(_HOMES)})

    def __dir__() -> list[str]:
        return listed(__all__)
