"""Batches of Hugging Face datasets by column; needs the datasets package."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gristmill._base.types import Alloc, Int64Array
from gristmill.sources._arrow import ChunkViews
from gristmill.sources._columns import ColumnSource, Gathered

__all__ = ["HuggingFaceColumns"]

# Formats that convert a column of numbers by its dtype alone.
CONVERTS_BY_DTYPE = (None, "numpy")


class HuggingFaceColumns(ColumnSource):
    """Gathers the columns of a ``datasets.Dataset``.

    Columns of numbers are gathered directly from Arrow's memory. They get the dtype of
    the dataset's format, which is found by reading two rows.  Other columns are read by
    ``dataset[keys]``, like the rows that ``__getitems__`` returns.
    """

    def __init__(self, dataset: Any) -> None:
        # `_other_columns` is the dataset of the columns that `_views` does not have;
        # None if it has all.  `_dtypes` are those of the columns of `_views`.
        self._dataset = self._other_columns = dataset
        self._names: tuple[str, ...] = ()  # Of all columns; () if `_views` has none.
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._views: ChunkViews | None = None
        self._is_inspected = False

    def __reduce__(self) -> tuple[type, tuple[Any]]:
        return type(self), (self._dataset,)

    def columns_at(
        self, keys: Int64Array, alloc: Alloc | None = None
    ) -> dict[str, Gathered]:
        """Return the columns of records; see `ColumnSource`."""
        if not self._is_inspected:
            self._is_inspected = True
            self._inspect()
        gathered: dict[str, Gathered] = {}
        if self._views is not None:
            for name, view in self._views.gather(keys, None).items():
                gathered[name] = _convert(view, self._dtypes[name], alloc)
        if self._other_columns is not None:
            columns = self._other_columns[keys.tolist()]
            for name, column in columns.items():
                if len(column) != len(keys):
                    raise ValueError(
                        f"Column {name!r} must have {len(keys)} values, got"
                        f" {len(column)}."
                    )
                gathered[name] = [column[i] for i in range(len(keys))]
        return {name: gathered[name] for name in self._names or gathered}

    def _inspect(self) -> None:
        """Find the columns that can be gathered directly from Arrow's memory."""
        dataset, dataset_format = self._dataset, self._dataset.format
        table = _table_of(dataset)
        if (
            table is None
            or dataset_format["type"] not in CONVERTS_BY_DTYPE
            or dataset_format["output_all_columns"]
        ):
            return
        ends = [0, len(dataset) - 1]  # Two rows show how the format converts columns.
        sample = dataset[ends]
        views = ChunkViews(table).gather(np.array(ends), None)
        for name in views.keys() & sample.keys():
            dtype = _dtype_of(sample[name], views[name])
            if dtype is not None:
                self._dtypes[name] = dtype
        if self._dtypes:
            self._names = tuple(sample)
            others = [name for name in self._names if name not in self._dtypes]
            self._views = ChunkViews(table.select([*self._dtypes]))
            self._other_columns = dataset.select_columns(others) if others else None


def _table_of(dataset: Any) -> pa.Table | None:
    """Return the table of a dataset's rows, or None if they were reordered."""
    arrow = dataset.with_format("arrow")
    # If rows were selected or shuffled, each slice is a copy.
    first, second = arrow[:1], arrow[:1]
    return arrow[:] if _addresses(first) == _addresses(second) else None


def _addresses(table: pa.Table) -> list[int]:
    """Return the addresses of the buffers of all columns."""
    chunks = [chunk for column in table.columns for chunk in column.chunks]
    buffers = [buffer for chunk in chunks for buffer in chunk.buffers()]
    return [buffer.address for buffer in buffers if buffer is not None]


def _dtype_of(
    formatted: Any, view: npt.NDArray[Any] | list[Any]
) -> np.dtype[Any] | None:
    """Return the dtype that a format gives a column of numbers, or None for others.

    `formatted` and `view` are the same rows, with and without the format.
    """
    assert isinstance(view, np.ndarray)
    # The dtype of Python's integers depends on their values beyond 64 bits.
    depends_on_values = view.dtype.kind == "u" and isinstance(formatted, list)
    is_numeric = view.dtype.kind in "iuf" and (
        view.ndim == 1 or type(formatted) is not list
    )
    if depends_on_values or not is_numeric:
        return None
    array = np.asarray(formatted)
    is_numeric_too = array.shape == view.shape and array.dtype.kind in "iuf"
    if not is_numeric_too or not np.array_equal(
        array, view.astype(array.dtype), equal_nan=True
    ):
        return None
    return array.dtype


def _convert(
    column: Any, dtype: np.dtype[Any], alloc: Alloc | None
) -> npt.NDArray[Any]:
    if alloc is None:
        array: npt.NDArray[Any] = column.astype(dtype, copy=False)
        return array
    out = alloc(column.shape, dtype)
    np.copyto(out, column, casting="unsafe")
    return out
