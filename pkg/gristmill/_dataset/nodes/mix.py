"""Datasets that mix several datasets, select from them, or concatenate them."""

from __future__ import annotations

import abc
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gristmill import _core, transforms
from gristmill._base.argument_checks import check_finite, kind
from gristmill._base.types import Indices, Int64Array, T
from gristmill._dataset.model import states
from gristmill._dataset.model.blocks import (
    BlockMapDataset,
    as_indices,
    block_of,
    epochs_and_offsets,
)
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, NodeIterator
from gristmill._dataset.model.known_length import UnknownLength, count_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import ParentSpec, as_dataset_list, builds
from gristmill._dataset.nodes.mix_arguments import (
    check_names,
    order_by_names,
    order_names,
)
from gristmill._hot import iterators, steps
from gristmill.errors import StateMismatch

# If the order of turns repeats only after more turns than this, the length of a mixture
# is not computed.
MAX_TURNS = 1 << 20


class SelectionMapDataset(ParentSpec, BlockMapDataset[T]):
    """Returns each element from one of its parents, which `_select` chooses."""

    _KIND = "order"

    def _node_line(self) -> str:
        return f"MixedMapDataset[{len(self._parents)} parents]"

    def __repr__(self) -> str:
        return (
            f"MixedMapDataset(parent_lengths={[len(p) for p in self._parents]},"
            f" selection_map={self._selection_text()})"
        )

    def _selection_text(self) -> str:
        """Describe how parents are selected."""
        raise NotImplementedError

    @abc.abstractmethod
    def _select(self, indices: Indices) -> tuple[Int64Array, Indices]:
        """Return each index's parent, as its number, and the index in that parent."""

    def by_parent(self, indices: Indices) -> Iterator[tuple[int, Int64Array, Indices]]:
        """Yield the number of each parent that has some of the elements at `indices`.

        With it, yield the places of these in `indices`, and their indices in the
        parent, both of shape (k,), in the order of `indices`.
        """
        parents, parent_indices = self._select(indices)
        count, start = len(self._parents), 0
        # Sorting brings the indices of one parent together, in their order.  NumPy
        # sorts small integers by counting.
        numbers = parents.astype(np.uint16) if count < 1 << 16 else parents
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(parents, minlength=count))
        for number, end in enumerate(ends.tolist()):
            if start < end:
                places = order[start:end]
                yield number, places, parent_indices[places]
            start = end

    def _block(self, indices: Indices) -> list[Any]:
        if len(indices) == 1:
            parents, parent_indices = self._select(indices)
            return self._read_parent(int(parents[0]), parent_indices)
        elements: list[Any] = [None] * len(indices)
        for number, places, parent_indices in self.by_parent(indices):
            found = self._read_parent(number, parent_indices)
            steps.scatter(found, places, elements)
        return elements

    def _read_parent(self, number: int, parent_indices: Indices) -> list[Any]:
        try:
            return block_of(self._parents[number], parent_indices)
        except Exception as error:
            error.add_note(
                f"Exception caught while processing dataset @ dataset_index={number},"
            )
            raise


class MixedMapDataset(SelectionMapDataset[T]):
    """Takes from each parent in proportion to its weight, or by a selection map.

    Args:
        parents: The datasets, or a mapping of names to them.
        proportions: A weight for each dataset, with the same names. Default: equal
            weights.
        selection_map: The user's own map, used instead of weights.

    Raises:
        ValueError: Both weights and a map are given, a weight is not positive, or a
            dataset is empty.
        TypeError: `selection_map` is not a selection map.
    """

    def __init__(
        self,
        parents: Sequence[MapDataset[T]] | Mapping[str, MapDataset[T]],
        proportions: Sequence[float] | Mapping[str, float] | None = None,
        selection_map: transforms.DatasetSelectionMap | None = None,
    ) -> None:
        check_names(parents, proportions)
        self._names = order_names(parents)
        super().__init__(as_dataset_list(order_by_names(parents, self._names), "mix"))
        if not self._parents:
            raise ValueError("There are no datasets to mix. Pass at least one.")
        if proportions is not None and selection_map is not None:
            raise ValueError(
                "Cannot set both proportions and selection_map. Pass one of them."
            )
        self._selection_map = selection_map
        if selection_map is not None:
            check_selection_map(selection_map)
            self._length = len(selection_map)
            return
        int_weights = [1] * len(self._parents)
        if proportions is not None:
            weights = order_by_names(proportions, order_names(proportions))
            int_weights = integer_proportions(weights, len(self._parents))
        self._proportions = tuple(int_weights)
        self._mixture = _core.Mixture(int_weights)
        self._update_from_parents()

    def _selection_text(self) -> str:
        if self._selection_map is not None:
            return repr(self._selection_map)
        return (
            f"SelectionWithProportionsMap(proportions={self._proportions},"
            f" length={self._length})"
        )

    def _select(self, indices: Indices) -> tuple[Int64Array, Indices]:
        if self._selection_map is not None:
            return self._apply_selection_map(self._selection_map, indices)
        if not indices.dtype.hasobject:
            return self._mixture.take(indices)
        # The turns of each parent in a period; objects, since indices may exceed int64.
        divisor = math.gcd(*self._proportions)
        shares = np.array([each // divisor for each in self._proportions], np.object_)
        periods, offsets = epochs_and_offsets(indices, sum(shares))
        parents, parent_offsets = self._mixture.take(offsets.astype(np.int64))
        parent_indices = parent_offsets + periods * shares[parents]
        return parents, as_indices(parent_indices.tolist())

    def _apply_selection_map(
        self, selection_map: transforms.DatasetSelectionMap, indices: Indices
    ) -> tuple[Int64Array, Indices]:
        selected = [selection_map[index] for index in indices.tolist()]
        # A negative number counts parents from the end, as in a list.
        parents = [range(len(self._parents))[number] for number, _ in selected]
        parent_indices = [index for _, index in selected]
        return np.array(parents, np.int64), as_indices(parent_indices)

    def _update_from_parents(self) -> None:
        if self._selection_map is not None:
            return
        # The mixture ends when its first parent ends. This is Grain's arithmetic.
        total = sum(self._proportions)
        lengths = [
            len(parent) / (proportion / total)
            for parent, proportion in zip(self._parents, self._proportions, strict=True)
        ]
        pairs = enumerate(zip(self._parents, lengths, strict=True))
        empty = [f"index {i} ({parent})" for i, (parent, n) in pairs if n == 0]
        if empty:
            raise ValueError(
                "All datasets must have positive length for mixing, but dataset(s) "
                f"at {', '.join(empty)} have length 0."
            )
        self._length = min(sys.maxsize, int(min(lengths)))


@builds("MapDataset.select_from_datasets")
def select_from_datasets(
    parents: Sequence[MapDataset[T]], selection_map: transforms.DatasetSelectionMap
) -> MixedMapDataset[T]:
    """See `MapDataset.select_from_datasets`."""
    check_selection_map(selection_map)
    return MixedMapDataset(parents, selection_map=selection_map)


def check_selection_map(selection_map: object) -> None:
    """Raise TypeError if an object lacks the methods of a `DatasetSelectionMap`."""
    has_both = {"__len__", "__getitem__"} <= set(dir(selection_map))
    if isinstance(selection_map, type) or not has_both:
        raise TypeError(
            "selection_map must have __len__() and __getitem__(index) that returns"
            f" (dataset, index in it), got {kind(selection_map)}. Derive it from"
            " transforms.DatasetSelectionMap."
        )


@builds("MapDataset.concatenate")
class ConcatenateMapDataset(SelectionMapDataset[T]):
    """All elements of an epoch of each parent, one parent after another."""

    def __init__(self, parents: Sequence[MapDataset[T]]) -> None:
        super().__init__(as_dataset_list(parents, "concatenate"))
        for parent in self._parents:
            if len(parent) >= sys.maxsize:
                raise ValueError(
                    f"Cannot concatenate infinite datasets. {parent} is infinite."
                )
        self._update_from_parents()

    def _update_from_parents(self) -> None:
        self._lengths = np.array([len(p) for p in self._parents], np.int64)
        # The index of the first element of each parent, and the length of an epoch.
        self._starts = np.concatenate([[0], np.cumsum(self._lengths)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        # Saved states of DataLoaders contain this text, so include every length.
        return f"ConcatenateMapDataset(parent_lengths={self._lengths.tolist()})"

    def _select(self, indices: Indices) -> tuple[Int64Array, Indices]:
        epochs, offsets = epochs_and_offsets(indices, len(self))
        offsets = offsets.astype(np.int64, copy=False)
        parents = np.searchsorted(self._starts, offsets, side="right") - 1
        parent_indices = (
            offsets - self._starts[parents] + epochs * self._lengths[parents]
        )
        return parents, parent_indices


class MixedIterDataset(ParentSpec, IterDataset[T]):
    """Takes from each parent in proportion to its weight."""

    _KIND = "order"

    def __init__(
        self,
        parents: Sequence[IterDataset[T]] | Mapping[str, IterDataset[T]],
        proportions: Sequence[float] | Mapping[str, float] | None = None,
    ) -> None:
        check_names(parents, proportions)
        self._names = order_names(parents)
        super().__init__(as_dataset_list(order_by_names(parents, self._names), "mix"))
        weights: Any = [1] * len(self._parents)
        if proportions is not None:
            weights = order_by_names(proportions, order_names(proportions))
        self._proportions = tuple(integer_proportions(weights, len(self._parents)))

    def __iter__(self) -> DatasetIterator[T]:
        return MixedDatasetIterator(self)

    def _count_elements(self) -> float:
        # The turns of each parent in a period of the order of turns.
        shares = np.array(self._proportions) // math.gcd(*self._proportions)
        turns = int(shares.sum())
        if turns > MAX_TURNS:
            raise UnknownLength(
                "the period of its proportions is too long to count elements."
            )
        order, _ = _core.Mixture(list(self._proportions)).take(np.arange(turns))
        counts: list[float] = []
        pairs = zip(self._parents, shares.tolist(), strict=True)
        for number, (parent, share) in enumerate(pairs):
            count = count_of(parent)
            if count < math.inf:
                # The mixture ends at the turn of a parent that has ended.
                periods, remainder = divmod(int(count), share)
                turn = np.flatnonzero(order == number)[remainder]
                count = periods * turns + int(turn)
            counts.append(count)
        return min(counts)

    def _arguments_text(self) -> str:
        return f"([{len(self._parents)} parents], proportions={self._proportions})"


class MixedDatasetIterator(iterators.MixStep, NodeIterator[T]):
    """Iterates over a mixture; `MixStep` defines ``__next__``, `index`, `stopped`."""

    _TURNS_AT_ONCE = 1024

    def __init__(self, node: MixedIterDataset[T]) -> None:
        NodeIterator.__init__(self, node)
        iterators.MixStep.__init__(self, self._parents)
        self._mixture = _core.Mixture(list(node._proportions))
        # The names of the parents, or None if states identify them by position.
        self._names = node._names
        # States of parents that are no longer in the mixture, by name.
        self._absent_states: dict[str, Any] = {}

    def get_state(self) -> Any:
        """Return the position of the mixture and of its parents."""
        parents: Any = [parent.get_state() for parent in self._parents]
        if self._names is not None:
            parents = dict(zip(self._names, parents, strict=True)) | self._absent_states
        return {"parents": parents, "index": self.index, "stop": self.stopped}

    def _check_state(self, state: Any) -> None:
        states.check_keys(self, state, ["parents", "index", "stop"])
        states.count(self, state["index"], "index")
        states.flag(self, state["stop"], "stop")
        found, names = state["parents"], self._names
        if isinstance(found, Mapping) != (names is not None):
            raise StateMismatch(self._mismatch_text(found))
        if names is not None:
            found = [found.get(name) for name in names]
        elif not isinstance(found, (list, tuple)) or len(found) != len(self._parents):
            raise StateMismatch(self._mismatch_text(found))
        for parent, parent_state in zip(self._parents, found, strict=True):
            if parent_state is not None:
                states.check_state(parent, parent_state)

    def _go_to(self, state: Any) -> None:
        # Parents that are missing in the state start from the beginning.  States of
        # parents that are only in the state are kept, in case these come back.
        found = state["parents"]
        if self._names is not None:
            self._absent_states = {
                name: found[name] for name in found if name not in self._names
            }
            found = [found.get(name) for name in self._names]
        for parent, parent_state in zip(self._parents, found, strict=True):
            if parent_state is not None:
                parent.set_state(parent_state)
        self.index = state["index"]
        self.stopped = state["stop"]

    def _mismatch_text(self, parent_states: Any) -> str:
        is_mapping = isinstance(parent_states, Mapping)
        found: Any = list(parent_states) if is_mapping else kind(parent_states)
        if isinstance(parent_states, (list, tuple)):
            found = f"{len(parent_states)} datasets"
        expected = self._names or f"{len(self._parents)} datasets"
        return (
            f"{self}: the state must have the same datasets, expected {expected}, got"
            f" {found}. A mixture whose datasets change needs names:"
            " IterDataset.mix({name: dataset})."
        )

    def _look_up_turns(self, first: int) -> list[int]:
        """Return the numbers of the parents of turn `first` and the next turns."""
        indices = np.arange(first, first + self._TURNS_AT_ONCE, dtype=np.int64)
        turns: list[int] = self._mixture.take(indices)[0].tolist()
        return turns


def integer_proportions(weights: Sequence[float], count: int) -> list[int]:
    """Scale `count` weights to a minimum of 100, and truncate them, as Grain does."""
    if isinstance(weights, (str, bytes)) or not isinstance(weights, Iterable):
        raise TypeError(
            f"weights must be a sequence of numbers, got {kind(weights)}. Pass one for"
            " each dataset."
        )
    weights = list(weights)
    for number, weight in enumerate(weights):
        check_finite(f"weights[{number}]", weight)
    if len(weights) != count:
        raise ValueError(
            f"weights must have {count} numbers, one for each dataset, got"
            f" {len(weights)}."
        )
    if not weights:
        raise ValueError("There are no datasets to mix. Pass at least one.")
    if 0 in weights:
        raise ValueError("Must specify all non-zero proportions for mixing.")
    if min(weights) < 0:
        raise ValueError(f"Weights must be positive, got {list(weights)}.")
    scale = 100 / min(weights)
    return [int(weight * scale) for weight in weights]
