"""Batches gathered from whole tensors, where torch would stack rows one by one.

Only where the result is the one torch's `default_collate` gives: the same types,
dtypes and strides.  A batch that cannot be gathered (an index out of range, a
negative one, memory) is fetched torch's way, which raises torch's error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch.utils.data import (
    ConcatDataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from gristmill._torch import private
from gristmill._torch.indices.drawing import Block, Drawn, as_list

Fetch: TypeAlias = Callable[[Any], Any]
Columns: TypeAlias = list[torch.Tensor]

# What `default_collate` is made of, as long as nobody has extended it.
_TORCH_COLLATION = {
    torch.Tensor: private.collate_tensor_fn,
    np.ndarray: private.collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): private.collate_numpy_scalar_fn,
    float: private.collate_float_fn,
    int: private.collate_int_fn,
    str: private.collate_str_fn,
    bytes: private.collate_str_fn,
}
# Torch stacks fewer ints faster than NumPy.
_MANY = 16


def is_torchs(collate_fn: Any) -> bool:
    """Whether batches are made by the rules of torch alone."""
    return collate_fn is default_collate and private.collation() == _TORCH_COLLATION


def samples_fetch(dataset: Any, fetch: Fetch) -> Fetch:
    """A fetch of batches that reads the samples one by one, and stacks ints faster.

    Args:
        dataset: A map-style dataset, read in batches by a `collate_fn` that
            `is_torchs`.
        fetch: Torch's way: takes what a batch sampler gives and returns the batch.
    """

    def fetch_samples(batch: Any) -> Any:
        indices = as_list(batch)
        if type(indices) is not list or getattr(dataset, "__getitems__", None):
            return fetch(indices)
        samples = [dataset[index] for index in indices]
        # Not bools, nor ints of NumPy's: for those torch has other rules.
        if set(map(type, samples)) != {int}:
            return default_collate(samples)
        if len(samples) >= _MANY and _tensors_are_on_cpu():
            with contextlib.suppress(OverflowError):
                return torch.from_numpy(np.array(samples, np.int64))
        return torch.tensor(samples)

    return fetch_samples


def in_worker(fetcher: Any, dataset: Any) -> Any:
    """A worker's fetcher that reads no rows, or `fetcher` where there is none."""
    fetch = native_fetch(dataset, fetcher.fetch)
    return fetcher if fetch is None else _Fetcher(fetch)


@dataclasses.dataclass(frozen=True)
class _Fetcher:
    fetch: Fetch


def native_fetch(dataset: Any, fetch: Fetch) -> Fetch | None:
    """A fetch of batches of `dataset` that reads no rows, None where there is none.

    It reads no rows of a `Drawn` and of a list of indices.  Anything else that a batch
    sampler may give is fetched torch's way.

    Args:
        dataset: A map-style dataset, read in batches by a `collate_fn` that
            `is_torchs`.
        fetch: Torch's way: takes what a batch sampler gives and returns the batch.
    """
    table = _table(dataset)
    if table is not None:
        return _TableFetch(table, fetch)
    if _is_hugging_face(dataset):
        return _HuggingFaceFetch(dataset, fetch)
    return None


class Table(Protocol):
    """Rows that lie in tensors, one for each column."""

    # How columns make a batch: a column's number, or lists and dicts of such.
    layout: Any

    def __len__(self) -> int:
        """The number of rows."""

    def row_types(self) -> list[Any]:
        """What rows of two tables have in common that may be in one batch."""

    def gather(self, index: Block) -> Columns:
        """The rows of `index` as new tensors, one for each column.

        Raises:
            IndexError: A number is negative or not below the number of rows.
        """


class _Tensors:
    """Tensors of equal length; `origin` is the type whose rows they hold."""

    def __init__(
        self, tensors: tuple[torch.Tensor, ...], layout: Any, origin: type
    ) -> None:
        self._tensors = tensors
        self._origin = origin
        self.layout = layout

    def __len__(self) -> int:
        return min(len(tensor) for tensor in self._tensors)

    def row_types(self) -> list[Any]:
        return [(self._origin, t.dtype, t.shape[1:]) for t in self._tensors]

    def gather(self, index: Block) -> Columns:
        if type(index) is range:
            if index.stop > len(self):
                raise IndexError
            rows = slice(index.start, index.stop)
            packed = torch.contiguous_format
            return [t[rows].clone(memory_format=packed) for t in self._tensors]
        positions = torch.from_numpy(index)
        return [tensor.index_select(0, positions) for tensor in self._tensors]


class _Stacked:
    """Tables of equal length, side by side."""

    def __init__(self, tables: list[Table], layout: Any) -> None:
        self._tables = tables
        self.layout = layout

    def __len__(self) -> int:
        return min(len(table) for table in self._tables)

    def row_types(self) -> list[Any]:
        return [kind for table in self._tables for kind in table.row_types()]

    def gather(self, index: Block) -> Columns:
        return [column for table in self._tables for column in table.gather(index)]


class _Selected:
    """Some rows of a table."""

    def __init__(self, table: Table, indices: np.ndarray[Any, Any]) -> None:
        self._table = table
        self._indices = indices
        self.layout = table.layout

    def __len__(self) -> int:
        return len(self._indices)

    def row_types(self) -> list[Any]:
        return self._table.row_types()

    def gather(self, index: Block) -> Columns:
        if type(index) is range:
            if index.stop > len(self._indices):
                raise IndexError
            return self._table.gather(self._indices[index.start : index.stop])
        if index.min() < 0:
            raise IndexError
        return self._table.gather(self._indices[index])


class _Concatenated:
    """Tables with rows of one type, one behind the other."""

    def __init__(self, tables: list[Table]) -> None:
        self._tables = tables
        self._ends = np.cumsum([len(table) for table in tables])
        self.layout = tables[0].layout

    def __len__(self) -> int:
        return int(self._ends[-1])

    def row_types(self) -> list[Any]:
        return self._tables[0].row_types()

    def gather(self, index: Block) -> Columns:
        index = np.asarray(index, np.int64)
        if index.max() >= len(self):
            raise IndexError
        owners = np.searchsorted(self._ends, index, side="right")
        batch: Columns = []
        for number in np.unique(owners).tolist():
            table = self._tables[number]
            (places,) = np.nonzero(owners == number)
            rows: Columns = table.gather(
                index[places] - (self._ends[number] - len(table))
            )
            if len(places) == len(index):
                return rows
            batch = batch or [
                column.new_empty((len(index), *column.shape[1:])) for column in rows
            ]
            for whole, part in zip(batch, rows, strict=True):
                whole[torch.from_numpy(places)] = part
        return batch


def _table(dataset: Any) -> Table | None:
    kind = type(dataset)
    if "__getitems__" in getattr(dataset, "__dict__", ()):
        return None
    if kind is TensorDataset:
        return _tensors(dataset.tensors, list(range(len(dataset.tensors))))
    if kind is torch.Tensor:
        return _tensors((dataset,), 0)
    if kind is np.ndarray:
        return _array(dataset)
    if kind is Subset:
        return _selected(_table(dataset.dataset), dataset.indices)
    if kind is StackDataset:
        return _stacked(dataset.datasets)
    if kind is ConcatDataset:
        return _concatenated([_table(part) for part in dataset.datasets])
    return None


def _tensors(
    tensors: tuple[torch.Tensor, ...], layout: Any, origin: type = torch.Tensor
) -> Table | None:
    return _Tensors(tensors, layout, origin) if all(map(_is_plain, tensors)) else None


def _is_plain(tensor: Any) -> bool:
    """Whether gathered rows are what a stack of rows is."""
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.ndim > 0
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _array(array: np.ndarray[Any, Any]) -> Table | None:
    # Torch warns of arrays that cannot be written to, and knows no such scalars.
    scalars = array.ndim == 1
    if not array.flags.writeable or (scalars and array.dtype == np.uint64):
        return None
    if not _tensors_are_on_cpu():
        return None
    try:
        return _tensors((torch.from_numpy(array),), 0, np.ndarray)
    except (TypeError, ValueError):
        return None


def _tensors_are_on_cpu() -> bool:
    """Whether torch makes tensors of numbers and arrays where those are."""
    # In torch 2.6 `get_default_device` does not know of ``with torch.device(...)``.
    found: bool = torch.empty(0).is_cpu
    return found


def _selected(table: Table | None, indices: Any) -> Table | None:
    if table is None or type(indices) not in (list, range):
        return None
    numbers = np.asarray(indices) if type(indices) is range else _numbers(indices)
    return None if numbers is None else _Selected(table, numbers)


def _stacked(datasets: tuple[Any, ...] | dict[Any, Any]) -> Table | None:
    named = isinstance(datasets, dict)
    parts = list(datasets.values()) if isinstance(datasets, dict) else list(datasets)
    tables, layouts, first = [], [], 0
    for part in parts:
        table = _table(part)
        if table is None:
            return None
        tables.append(table)
        layouts.append(_shifted(table.layout, first))
        first += len(table.row_types())
    layout = dict(zip(datasets, layouts, strict=True)) if named else layouts
    return _Stacked(tables, layout)


def _shifted(layout: Any, by: int) -> Any:
    if isinstance(layout, int):
        return layout + by
    if isinstance(layout, dict):
        return {key: _shifted(part, by) for key, part in layout.items()}
    return [_shifted(part, by) for part in layout]


def _concatenated(tables: list[Table | None]) -> Table | None:
    found = [table for table in tables if table is not None]
    first = found[0] if len(found) == len(tables) else None
    if first is None:
        return None
    for table in found:
        if table.layout != first.layout or table.row_types() != first.row_types():
            return None
    return _Concatenated(found)


class _TableFetch:
    """Gathers the batches of a table."""

    def __init__(self, table: Table, fetch: Fetch) -> None:
        self._table = table
        self._fetch = fetch

    def __call__(self, batch: Any) -> Any:
        index = _row_numbers(batch)
        if index is not None:
            with contextlib.suppress(IndexError, RuntimeError):
                return _assembled(self._table.layout, self._table.gather(index))
        return self._fetch(as_list(batch))


def _row_numbers(batch: Any) -> Block | None:
    """A batch as a block, None for what torch has to make sense of."""
    if type(batch) is Drawn:
        return batch.block
    return _numbers(batch) if type(batch) is list else None


def _numbers(indices: list[Any]) -> np.ndarray[Any, Any] | None:
    """Indices as an array, None for what may not be row numbers."""
    # Not bools, which would index otherwise.
    if set(map(type, indices)) != {int}:
        return None
    try:
        return np.array(indices, np.int64)
    except OverflowError:
        return None


def _assembled(layout: Any, columns: Columns) -> Any:
    if type(layout) is list:
        return [_assembled(part, columns) for part in layout]
    if type(layout) is dict:
        return {key: _assembled(part, columns) for key, part in layout.items()}
    return columns[layout]


def _is_hugging_face(dataset: Any) -> bool:
    module = sys.modules.get("datasets.arrow_dataset")
    return module is not None and type(dataset) is module.Dataset


class _HuggingFaceFetch:
    """Collates the columns that a Hugging Face dataset gives, without making rows."""

    def __init__(self, dataset: Any, fetch: Fetch) -> None:
        self._dataset = dataset
        self._fetch = fetch

    def __call__(self, batch: Any) -> Any:
        indices = as_list(batch)
        if type(indices) is not list or not indices:
            return self._fetch(indices)
        columns = self._dataset[indices]
        count = len(columns[next(iter(columns))])
        return {name: _collated(column, count) for name, column in columns.items()}


def _collated(column: Any, count: int) -> Any:
    if type(column) is torch.Tensor and _is_plain(column):
        return column.contiguous()
    values = column if type(column) is list else [column[i] for i in range(count)]
    return default_collate(values)
