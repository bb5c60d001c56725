"""Gathers batches from whole tensors, instead of stacking rows one by one.

This is used only if the result equals that of torch's `default_collate`: the same
types, dtypes and strides.  If a batch cannot be gathered (an index is negative or out
of range, or memory runs out), torch's fetch is used, which raises torch's error.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from gristmill._engine.stage_times import COLLATE
from gristmill._hot.int_list import ints_at
from gristmill._hot.run import begin, end
from gristmill._torch import private
from gristmill._torch.batches.tensors import is_plain
from gristmill._torch.indices.draws import Block, IndexBatch, as_list
from gristmill._torch.private import is_own

Fetch: TypeAlias = Callable[[Any], Any]
# `torch.tensor` is fastest for at least 2 ints and fewer than this.
_MIN_NUMPY_INTS = 16


def is_torch_collate(collate_fn: Any) -> bool:
    """Return whether torch's own, unmodified rules collate batches."""
    if collate_fn is not default_collate or not is_own(private.MapFetcher, "fetch"):
        return False
    rules = private.collation()
    own_globals = default_collate.__globals__
    are_own = all(
        getattr(function, "__globals__", None) is own_globals
        for function in rules.values()
    )
    # The program may also have removed rules.
    return are_own and rules.keys() >= {torch.Tensor, np.ndarray, int}


def samples_fetch(dataset: Any, fetch: Fetch) -> Fetch:
    """Return a fetch that reads samples one by one, and stacks ints faster than torch.

    It takes lists of indices, not an `IndexBatch`.

    Args:
        dataset: A map-style dataset, read in batches by a `collate_fn` for which
            `is_torch_collate` returns True.
        fetch: Torch's fetch: takes an item of a batch sampler and returns the batch.
    """

    def fetch_samples(batch: Any) -> Any:
        if type(batch) is not list or getattr(dataset, "__getitems__", None):
            return fetch(batch)
        samples = [dataset[index] for index in batch]
        stage_start = begin()
        # Exact types: torch has other rules for bools and NumPy's ints.
        if set(map(type, samples)) != {int}:
            collated = default_collate(samples)
        elif 1 < len(samples) < _MIN_NUMPY_INTS:
            collated = torch.tensor(samples)
        else:
            collated = _stack_ints(samples)
        if stage_start >= 0:
            end(COLLATE, stage_start)
        return collated

    return fetch_samples


def _stack_ints(ints: list[int]) -> torch.Tensor:
    """Return ``torch.tensor(ints)`` for one int, or for many, in less time.

    One int takes a third of the time; with many, NumPy takes a tenth for each.
    """
    try:
        if len(ints) == 1:
            return torch.full((1,), ints[0])
        stacked = torch.empty(len(ints), dtype=torch.int64)
        stacked.numpy()[:] = ints
    except (OverflowError, RuntimeError, TypeError):
        return torch.tensor(ints)  # Another default device, or an int over 64 bits.
    return stacked


def native_fetch(dataset: Any, fetch: Fetch) -> Fetch | None:
    """Return a fetch that gathers all rows of a batch at once, or None if impossible.

    Torch's fetch gets the batch if it is neither an `IndexBatch` nor a list of indices.
    See `samples_fetch` for the arguments.
    """
    table = _unpatched_table(dataset)
    if table is None:
        return None

    def gather_rows(batch: Any) -> Any:
        nonlocal table
        index = batch.block if type(batch) is IndexBatch else None
        if type(batch) is list:
            index = _int64_array(batch)
        if index is None or table is None:
            return fetch(as_list(batch))
        try:
            return table.gather(index)
        except (LookupError, TypeError, OverflowError, RuntimeError):
            is_changed = False
        except _DatasetChangedError:
            table, is_changed = _unpatched_table(dataset), True
        return gather_rows(batch) if is_changed else fetch(as_list(batch))

    return gather_rows


class _DatasetChangedError(Exception):
    """A dataset's parts were replaced after its `Table` was made."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows stored in tensors.

    Attributes:
        row: The type, dtype and shape of a row.  Rows of two tables may share a batch
            only if these are equal.
        gather: Copies the rows at some indices to a batch of new tensors.  Raises
            `_DatasetChangedError`, or another error if torch has to fetch the rows:
            IndexError for a negative index or one that is too large.
    """

    row: Any
    gather: Callable[[Block], Any]


def _rows(tensor: torch.Tensor, index: Block) -> torch.Tensor:
    """Return copies of the rows of a tensor at some indices."""
    if isinstance(index, range):
        if index.stop > len(tensor):
            raise IndexError
        rows = tensor[index.start : index.stop]
        return rows.clone(memory_format=torch.contiguous_format)
    return tensor.index_select(0, torch.from_numpy(index))


def _join_rows(batches: list[Any], order: torch.Tensor) -> Any:
    """Concatenate batches into one, and reorder its rows."""
    first = batches[0]
    if type(first) is list:
        return [_join_rows([*parts], order) for parts in zip(*batches, strict=True)]
    if type(first) is dict:
        return {
            key: _join_rows([part[key] for part in batches], order) for key in first
        }
    return torch.cat(batches).index_select(0, order)


def _unpatched_table(dataset: Any) -> Table | None:
    """Return the table of a dataset, or None if torch's classes are patched."""
    table = _table(dataset)
    if table is None:
        return None
    names = ("__getitem__", "__getitems__")
    are_own = all(is_own(cls, *names) for cls in (Dataset, *_TABLE_MAKERS))
    return table if are_own else None


def _table(dataset: Any) -> Table | None:
    """Return the table of a dataset, or None if a gather may differ from torch."""
    # An object's own function, which torch would call.
    if "__getitems__" in getattr(dataset, "__dict__", ()):
        return None
    make_table = _TABLE_MAKERS.get(type(dataset))
    return make_table(dataset) if make_table else None


def _tensor_table(tensor: Any, origin: type = torch.Tensor) -> Table | None:
    """Return the table of a tensor; `origin` is the type that the dataset holds."""
    if not is_plain(tensor) or tensor.ndim == 0:
        return None
    row = (origin, tensor.dtype, tensor.shape[1:])
    return Table(row, functools.partial(_rows, tensor))


def _array_table(array: np.ndarray[Any, Any]) -> Table | None:
    # Torch warns about read-only arrays, and cannot collate uint64 scalars.
    has_scalars = array.ndim == 1
    if not array.flags.writeable or (has_scalars and array.dtype == np.uint64):
        return None
    # With another default device, torch collates arrays to that device.  (In torch
    # 2.6 `get_default_device` ignores ``with torch.device(...)``.)
    if not torch.empty(0).is_cpu:
        return None
    try:
        tensor = torch.from_numpy(array)
    except (TypeError, ValueError):
        return None
    table, shape = _tensor_table(tensor, np.ndarray), array.shape
    if table is None:
        return None

    def gather(index: Block) -> torch.Tensor:
        if array.shape != shape:
            raise _DatasetChangedError
        return _rows(tensor, index)

    return Table(table.row, gather)


def _subset_table(subset: Subset[Any]) -> Table | None:
    dataset = subset.dataset
    table = _table(dataset)
    if table is None or type(subset.indices) not in (list, range):
        return None

    def gather(index: Block) -> Any:
        indices = subset.indices
        if subset.dataset is not dataset:
            raise _DatasetChangedError
        if type(indices) is list:
            return table.gather(ints_at(indices, index))
        if type(indices) is range:
            return table.gather(_items_of_range(indices, index))
        raise _DatasetChangedError

    return Table(table.row, gather)


def _items_of_range(numbers: range, index: Block) -> Block:
    """Return the items of a range at some indices.

    Raises:
        IndexError: An index is negative or too large.
    """
    if isinstance(index, range):
        if index.stop > len(numbers):
            raise IndexError
        items = numbers[index.start : index.stop]
        if items.step == 1 and items.start >= 0:
            return items
        return np.arange(items.start, items.stop, items.step)
    if index.min() < 0 or index.max() >= len(numbers):
        raise IndexError
    return numbers.start + numbers.step * index


def _columns_table(owner: TensorDataset | StackDataset, name: str) -> Table | None:
    """Return the table of columns: a batch is a list or a dict of their batches.

    `name` is the attribute of `owner` that holds the columns.
    """
    columns = getattr(owner, name)
    if type(columns) is dict:
        return _named_columns_table(owner, name, columns)
    tables = _tables(columns) if type(columns) is tuple else None
    if tables is None:
        return None

    def gather(index: Block) -> Any:
        if getattr(owner, name) is not columns:
            raise _DatasetChangedError
        return [table.gather(index) for table in tables]

    return Table([table.row for table in tables], gather)


def _named_columns_table(
    owner: TensorDataset | StackDataset, name: str, columns: dict[str, Any]
) -> Table | None:
    tables = _tables(columns.values())
    if tables is None:
        return None
    # A copy, to detect changes of the dict.
    original_items = [*columns.items()]

    def gather(index: Block) -> Any:
        if getattr(owner, name) is not columns or len(columns) != len(original_items):
            raise _DatasetChangedError
        batch = {}
        for (key, column), original, table in zip(
            columns.items(), original_items, tables, strict=True
        ):
            if key is not original[0] or column is not original[1]:
                raise _DatasetChangedError
            batch[key] = table.gather(index)
        return batch

    rows = [
        (key, table.row) for (key, _), table in zip(original_items, tables, strict=True)
    ]
    return Table(rows, gather)


def _tables(parts: Iterable[Any]) -> list[Table] | None:
    """Return the tables of all parts, or None if a part has none."""
    optional_tables = [_table(part) for part in parts]
    tables = [table for table in optional_tables if table is not None]
    return tables if len(tables) == len(optional_tables) else None


def _concat_table(concat: ConcatDataset[Any]) -> Table | None:
    if type(concat.datasets) is not list or type(concat.cumulative_sizes) is not list:
        return None
    parts, sizes = [*concat.datasets], [*concat.cumulative_sizes]
    tables = _tables(parts)
    if tables is None or any(table.row != tables[0].row for table in tables):
        return None
    ends = np.array(sizes, np.int64)

    def gather(index: Block) -> Any:
        datasets = concat.datasets
        if concat.cumulative_sizes != sizes:
            raise _DatasetChangedError
        index = np.asarray(index, np.int64)
        owners = np.searchsorted(ends, index, side="right")
        batches = []
        for owner in np.unique(owners).tolist():
            if datasets[owner] is not parts[owner]:
                raise _DatasetChangedError
            start = ends[owner - 1] if owner else 0
            batches.append(tables[owner].gather(index[owners == owner] - start))
        if len(batches) == 1:
            return batches[0]
        # The rows of the joined batches are sorted by owner; undo that.
        by_owner = np.argsort(owners, kind="stable")
        return _join_rows(batches, torch.from_numpy(np.argsort(by_owner)))

    return Table(tables[0].row, gather)


# Keyed by exact type: a subclass may return other rows.
_TABLE_MAKERS: dict[type, Callable[[Any], Table | None]] = {
    TensorDataset: lambda data: _columns_table(data, "tensors"),
    torch.Tensor: _tensor_table,
    np.ndarray: _array_table,
    Subset: _subset_table,
    StackDataset: lambda data: _columns_table(data, "datasets"),
    ConcatDataset: _concat_table,
}


def _int64_array(indices: list[Any]) -> np.ndarray[Any, Any] | None:
    """Return indices as an int64 array, or None if one is not an int of 64 bits."""
    # NumPy would treat bools as a mask.
    if set(map(type, indices)) != {int}:
        return None
    try:
        return np.array(indices, np.int64)
    except OverflowError:
        return None
