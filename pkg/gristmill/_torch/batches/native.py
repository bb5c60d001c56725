"""Batches gathered from whole tensors, where torch would stack rows one by one.

Only where the result is the one torch's `default_collate` gives: the same types,
dtypes and strides.  A batch that cannot be gathered (an index out of range, a
negative one, memory) is fetched torch's way, which raises torch's error.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import (
    ConcatDataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from gristmill._engine.stage_times import COLLATE
from gristmill._hot import run as hot_run
from gristmill._torch import private
from gristmill._torch.batches.tensors import is_plain
from gristmill._torch.indices.draws import Block, Drawn, as_list

Fetch: TypeAlias = Callable[[Any], Any]


def is_torchs(collate_fn: Any) -> bool:
    """Whether batches are made by the rules of torch alone."""
    if collate_fn is not default_collate:
        return False
    rules = private.collation()
    torchs = all(
        rule.__module__ == default_collate.__module__ for rule in rules.values()
    )
    return torchs and rules.keys() >= {torch.Tensor, np.ndarray, int}


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
        began = hot_run.begin()
        # Not bools, nor ints of NumPy's: for those torch has other rules.
        ints = set(map(type, samples)) == {int}
        made = torch.tensor(samples) if ints else default_collate(samples)
        hot_run.end(COLLATE, began)
        return made

    return fetch_samples


def native_fetch(dataset: Any, fetch: Fetch) -> Fetch | None:
    """A fetch of batches that reads no rows one by one, None where there is none.

    What is neither a `Drawn` nor a list of indices is fetched torch's way.  See
    `samples_fetch` for the arguments.
    """
    table = _table(dataset)
    if table is None:
        return None

    def gather_rows(batch: Any) -> Any:
        index = batch.block if type(batch) is Drawn else None
        if type(batch) is list:
            index = _numbers(batch)
        if index is not None:
            with contextlib.suppress(IndexError, RuntimeError):
                return table.gather(index)
        return fetch(as_list(batch))

    return gather_rows


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows that lie in tensors.

    Attributes:
        count: How many there are.
        row: What rows of two tables have in common that may be in one batch.
        gather: Makes the batch of some rows, in new tensors.  Raises IndexError for a
            number that is negative or not below `count`.
    """

    count: int
    row: Any
    gather: Callable[[Block], Any]


def _selection(index: Block, count: int) -> Any:
    """What selects rows of an array; raises IndexError as `Table.gather` does."""
    if isinstance(index, range):
        if index.stop > count:
            raise IndexError
        return slice(index.start, index.stop)
    if index.min() < 0:
        raise IndexError
    return index


def _joined(batches: list[Any], order: torch.Tensor) -> Any:
    """One batch with the rows of all, in this order."""
    first = batches[0]
    if type(first) is list:
        return [_joined([*parts], order) for parts in zip(*batches, strict=True)]
    if type(first) is dict:
        return {key: _joined([part[key] for part in batches], order) for key in first}
    return torch.cat(batches).index_select(0, order)


def _table(dataset: Any) -> Table | None:
    """The rows of a dataset, None where a stack of them may be something else."""
    if "__getitems__" in getattr(dataset, "__dict__", ()):
        return None
    make = _TABLES.get(type(dataset))
    return make(dataset) if make else None


def _tensor(tensor: Any, origin: type = torch.Tensor) -> Table | None:
    """The rows of a tensor; `origin` is the type whose rows they are."""
    if not is_plain(tensor) or tensor.ndim == 0:
        return None

    def gather(index: Block) -> torch.Tensor:
        chosen = _selection(index, len(tensor))
        if isinstance(chosen, slice):
            return tensor[chosen].clone(memory_format=torch.contiguous_format)
        found: torch.Tensor = tensor.index_select(0, torch.from_numpy(chosen))
        return found

    return Table(len(tensor), (origin, tensor.dtype, tensor.shape[1:]), gather)


def _array(array: np.ndarray[Any, Any]) -> Table | None:
    # Torch warns of arrays that cannot be written to, and knows no such scalars.
    scalars = array.ndim == 1
    if not array.flags.writeable or (scalars and array.dtype == np.uint64):
        return None
    # Torch makes tensors of arrays elsewhere.  (In torch 2.6 `get_default_device` does
    # not know of ``with torch.device(...)``.)
    if not torch.empty(0).is_cpu:
        return None
    try:
        return _tensor(torch.from_numpy(array), np.ndarray)
    except (TypeError, ValueError):
        return None


def _subset(subset: Subset[Any]) -> Table | None:
    table, indices = _table(subset.dataset), subset.indices
    if table is None or type(indices) not in (list, range):
        return None
    numbers = np.asarray(indices) if type(indices) is range else _numbers(indices)
    if numbers is None:
        return None

    def gather(index: Block) -> Any:
        return table.gather(numbers[_selection(index, len(numbers))])

    return Table(len(numbers), table.row, gather)


def _stack(stack: StackDataset) -> Table | None:
    parts, named = stack.datasets, isinstance(stack.datasets, dict)
    names = parts if named else range(len(parts))
    return _together({name: _table(parts[name]) for name in names}, named)


def _together(tables: dict[Any, Table | None], named: bool = False) -> Table | None:
    """Tables of equal length, side by side: a batch is a list or a dict of theirs."""
    found = {name: table for name, table in tables.items() if table is not None}
    if len(found) < len(tables):
        return None

    def gather(index: Block) -> Any:
        columns = {name: table.gather(index) for name, table in found.items()}
        return columns if named else [*columns.values()]

    count = min((table.count for table in found.values()), default=0)
    row = [named, *((name, table.row) for name, table in found.items())]
    return Table(count, row, gather)


def _concat(concat: ConcatDataset[Any]) -> Table | None:
    tables = [_table(part) for part in concat.datasets]
    found = [table for table in tables if table is not None]
    if len(found) < len(tables) or any(t.row != found[0].row for t in found):
        return None
    ends = np.cumsum([table.count for table in found])

    def gather(index: Block) -> Any:
        index = np.asarray(index, np.int64)
        owners = np.searchsorted(ends, index, side="right")
        parts = []
        for owner in np.unique(owners).tolist():
            table = found[owner]
            begin = ends[owner] - table.count
            parts.append(table.gather(index[owners == owner] - begin))
        if len(parts) == 1:
            return parts[0]
        by_owner = np.argsort(owners, kind="stable")
        return _joined(parts, torch.from_numpy(np.argsort(by_owner)))

    return Table(int(ends[-1]), found[0].row, gather)


# By exact type: a subclass may give other rows.
_TABLES: dict[type, Callable[[Any], Table | None]] = {
    TensorDataset: lambda data: _together(dict(enumerate(map(_tensor, data.tensors)))),
    torch.Tensor: _tensor,
    np.ndarray: _array,
    Subset: _subset,
    StackDataset: _stack,
    ConcatDataset: _concat,
}


def _numbers(indices: list[Any]) -> np.ndarray[Any, Any] | None:
    """Indices as an array, None for what may not be row numbers."""
    # Not bools, which would index otherwise.
    if set(map(type, indices)) != {int}:
        return None
    try:
        return np.array(indices, np.int64)
    except OverflowError:
        return None
