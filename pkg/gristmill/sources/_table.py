"""Arrays in memory as data sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill.sources._columns import ColumnSource, Gathered, writable_rows

__all__ = ["Columns", "TableSource", "is_table"]

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]


class TableSource(ColumnSource):
    """Serve the rows of an array, or of a dict of equally long arrays.

    A loader wraps such an array or dict in this class.

    Args:
        columns: An array of shape ``(N, *S)``, or a dict of arrays with the same ``N``.

    Record ``i`` is ``array[i]``, or the dict of ``{name: array[i]}``.  If an array in
    memory is read-only, records have copies of its rows, so that all can be written to.

    Raises:
        TypeError: A column is not an array.
        ValueError: The dict is empty, a column has no first axis, or the columns differ
            in length.

    Example:
        >>> table = TableSource({"x": np.zeros((3, 2)), "y": np.arange(3)})
        >>> len(table), table[2]["y"].item()
        (3, 2)
    """

    def __init__(self, columns: npt.NDArray[Any] | Columns) -> None:
        self._single = not isinstance(columns, Mapping)
        arrays: Columns = columns if isinstance(columns, Mapping) else {"": columns}
        self._length = _common_length(arrays, self._single)
        # Rows of a mapped file are ordinary arrays, with and without workers.
        self._columns = {
            name: np.asarray(column) if isinstance(column, np.memmap) else column
            for name, column in arrays.items()
        }
        self._rows = {name: writable_rows(column) for name, column in arrays.items()}

    @property
    def gathers(self) -> bool:
        """True if `gather` returns the same as stacking the rows.

        It does not for objects, records and foreign byte orders, which NumPy converts
        when it stacks rows.  NumPy also makes single strings as wide as the longest
        string of a batch.
        """
        return all(map(_gather_matches_stack, self._columns.values()))

    @property
    def contiguous(self) -> bool:
        """True if the rows of every column follow one another in memory."""
        return all(c.flags.c_contiguous for c in self._columns.values())

    @property
    def row_bytes(self) -> int:
        """The number of bytes of one row of all columns."""
        return sum(c.nbytes for c in self._columns.values()) // max(1, self._length)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if self._single:
            return self._rows[""][index]
        return {name: column[index] for name, column in self._rows.items()}

    def gather(
        self, rows: Int64Array, alloc: Alloc | None = None, rules: Rules = "plain"
    ) -> Any:
        """Return a batch of rows, an array or a dict of arrays.

        Args:
            rows: Row numbers in [0, len), int64 of shape (B,).
            alloc: Allocates the arrays of the batch.  None: NumPy allocates them.
            rules: "jax" sorts the names of a dict, as stacking rows by jax's rules
                does; "plain" keeps the table's order.

        Returns:
            An array of shape ``(B, *S)``, or a dict of them.

        Raises:
            IndexError: A row is out of range.
        """
        if self._single:
            return _gather(self._columns[""], rows, alloc)
        return self._map_columns(lambda column: _gather(column, rows, alloc), rules)

    @property
    def columns_are_rows(self) -> bool:
        """True if `columns_at` may be called: rows are not single objects."""
        return super().columns_are_rows and (self.gathers or not self._single)

    def columns_at(self, keys: Int64Array, alloc: Alloc | None = None) -> Any:
        """Return the columns of several rows, even if some cannot be gathered.

        Args:
            keys: Row numbers in [0, len), int64 of shape (B,).
            alloc: Allocates the arrays of the batch.  None: NumPy allocates them.

        Returns:
            An array of shape ``(B, *S)``, or a dict of them.  A column that NumPy
            converts when it stacks its leaves is the list of the B leaves.

        Raises:
            IndexError: A row is out of range.
        """

        def column_of(column: npt.NDArray[Any]) -> Gathered:
            if _gather_matches_stack(column):
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

        REQUIRES: the table is `contiguous`.

        Args:
            rows: Row numbers in [0, len), int64 of shape (B,).
            pool: The threads that copy the rows.
            alloc: Allocates the arrays of the batch.  None: NumPy allocates them.
            rules: The order of a dict's names, as in `gather`.

        Returns:
            The batch, and one pending copy per column.  The batch is filled after the
            caller has waited for each of them.

        Raises:
            IndexError: A row is out of range.
        """
        pending: list[_core.PendingGather] = []

        def begin(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
            out = _empty_batch(column, len(rows), alloc)
            pending.append(_core.PendingGather(pool, column, rows, out))
            return out

        return self._map_columns(begin, rules), pending

    def _map_columns(
        self, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], rules: Rules
    ) -> Any:
        """Return the results of a function of each column, in the form of a batch."""
        if self._single:
            return function(self._columns[""])
        names = sorted(self._columns) if rules == "jax" else self._columns
        return {name: function(self._columns[name]) for name in names}

    def __repr__(self) -> str:
        if self._single:
            return f"TableSource({_dtype_and_shape(self._columns[''])})"
        columns = ", ".join(
            f"{n!r}: {_dtype_and_shape(c)}" for n, c in self._columns.items()
        )
        return f"TableSource({{{columns}}})"


def is_table(source: Any) -> bool:
    """Return whether a source is a plain array, or a dict that contains arrays."""
    if isinstance(source, np.ndarray):
        # Rows of other subclasses may mean more than their bytes, such as masks.
        return type(source) in (np.ndarray, np.memmap)
    return type(source) is dict and any(
        isinstance(column, np.ndarray) for column in source.values()
    )


def _common_length(columns: Columns, single: bool) -> int:
    """Check the columns and return their length; `single` is for error texts."""
    if not columns:
        raise ValueError("data_source must have at least one array, got an empty dict.")
    lengths: dict[str, int] = {}
    for name, column in columns.items():
        subject = "data_source" if single else f"data_source[{name!r}]"
        if not isinstance(column, np.ndarray):
            raise TypeError(
                f"{subject} must be a NumPy array, like every value of a dict of"
                f" arrays, got a {type(column).__name__}. Convert it with np.asarray."
            )
        if column.ndim == 0:
            raise ValueError(
                f"{subject} must have a first axis, of records, got shape ()."
            )
        lengths[subject] = len(column)
        first, length = next(iter(lengths.items()))
        if len(column) != length:
            raise ValueError(
                f"{subject} must have {length} rows, like {first}, got {len(column)}."
                " All arrays of a data source must have the same length."
            )
    return length


def _gather_matches_stack(column: npt.NDArray[Any]) -> bool:
    """Return whether `_gather` returns the same as stacking the rows of a column."""
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
        # np.take would count negative rows from the end.
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


def _dtype_and_shape(column: npt.NDArray[Any]) -> str:
    return f"{column.dtype}[{','.join(map(str, column.shape))}]"
