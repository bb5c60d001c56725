"""Mixtures of `MapDataset` that count tokens, change weights or drop datasets."""

from __future__ import annotations

import copy
import functools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gristmill._base.argument_checks import kind
from gristmill._base.types import Indices, Int64Array, T
from gristmill._dataset.model.blocks import epochs_and_offsets, origin_of
from gristmill._dataset.model.known_length import ENDLESS
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import builds
from gristmill._dataset.nodes.kept_order import KeptOrder
from gristmill._dataset.nodes.mix import (
    MixedMapDataset,
    SelectionMapDataset,
)
from gristmill._dataset.nodes.mix_arguments import (
    MixRule,
    order_by_names,
    parse_mixture,
)
from gristmill._dataset.nodes.mix_plan import MixPlan
from gristmill._dataset.nodes.mix_windows import PlanPart
from gristmill._dataset.nodes.running_counts import (
    ElementCount,
    RunningCount,
    TokenCount,
)
from gristmill.mixing import AtEnd, MixSchedule, MixUnit, Weights

# The most epochs whose plans are kept at once.
MAX_PLANS = 2


@builds("MapDataset.mix")
def mix_map_datasets(
    datasets: Any,
    weights: Weights | MixSchedule | None = None,
    *,
    unit: MixUnit = "elements",
    lengths: Any = None,
    epochs: Any = 1,
    at_end: AtEnd = "stop",
) -> MapDataset[Any]:
    """See `MapDataset.mix`."""
    datasets, rule = parse_mixture(
        MapDataset, datasets, weights, (unit, at_end), epochs, ("lengths", lengths)
    )
    if rule is None:
        plain_weights: Any = weights
        return MixedMapDataset(datasets, plain_weights)
    lengths = _lengths_of_each(lengths, rule, len(datasets))
    return PlannedMixMapDataset(datasets, rule, lengths)


class PlannedMixMapDataset(SelectionMapDataset[T]):
    """Takes from each parent by a `MixPlan`.

    Args:
        parents: The datasets.
        rule: How they are mixed.
        lengths: The tokens of the elements of each dataset, see `TokenCount`; None: the
            source of the dataset has them.
    """

    def __init__(
        self,
        parents: Sequence[MapDataset[T]],
        rule: MixRule,
        lengths: Sequence[Any],
    ) -> None:
        super().__init__(parents)
        self._rule = rule
        self._lengths = lengths
        self._parent_lengths: list[int] = []
        self._update_from_parents()
        self._counts  # Raises if lengths are wrong.  # noqa: B018

    def _update_from_parents(self) -> None:
        lengths = [len(parent) for parent in self._parents]
        if lengths == self._parent_lengths:
            return  # Copies for threads and measurements have the same plan.
        self._parent_lengths = lengths
        for name in ("_counts", "_length"):
            self.__dict__.pop(name, None)
        self._plans: dict[int, MixPlan] = {}
        self._kept: KeptOrder | None = None
        if 0 in lengths:
            number = lengths.index(0)
            raise ValueError(
                "All datasets must have positive length for mixing, but"
                f" {self._rule.name_of(number)} ({self._parents[number]}) has length 0."
            )

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        copied.__dict__ |= self.__dict__
        return copied

    def __deepcopy__(self, memo: Any) -> Self:
        copied = copy.copy(self)  # Copies for threads have the same plan and lengths.
        copied._parents = copy.deepcopy(self._parents, memo)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        # Sums of lengths are computed again when they are needed, but the length of
        # the mixture only once.
        state = self.__dict__ | {"_length": len(self), "_plans": {}}
        state.pop("_counts", None)
        return state

    def _node_line(self) -> str:
        return f"PlannedMixMapDataset[{len(self._parents)} parents]"

    def __repr__(self) -> str:
        # Saved states of DataLoaders contain this text.
        return (
            f"PlannedMixMapDataset(parent_lengths={self._parent_lengths},"
            f" {self._selection_text()})"
        )

    def _selection_text(self) -> str:
        return str(self._rule)

    @functools.cached_property
    def _counts(self) -> list[TokenCount] | None:
        """Counts the tokens of each parent; None if they are not needed."""
        if not self._rule.counts_tokens:
            return None
        return [
            TokenCount(parent, lengths, self._rule.name_of(number))
            for number, (parent, lengths) in enumerate(
                zip(self._parents, self._lengths, strict=True)
            )
        ]

    @functools.cached_property
    def _length(self) -> int:  # type: ignore[override]
        try:
            if self._rule.at_end == "drop":
                length = self._plan_of(0).count_all()
            else:
                length = self._plan_of(0).count_until(self._ends())
        except OverflowError:  # A part with a tiny weight ends after 2**63 elements.
            length = math.inf
        return int(min(length, sys.maxsize))

    def _ends(self) -> list[int | None]:
        """Return the length of each parent; None if it is endless."""
        return [
            None if length >= ENDLESS else length for length in self._parent_lengths
        ]

    def _plan_of(self, epoch: int) -> MixPlan:
        """Return the plan of an epoch; without `at_end="drop"`, it has all epochs."""
        plan = self._plans.get(epoch)
        if plan is None:
            parts = []
            for number, end in enumerate(self._ends()):
                first = epoch * (end or 0)
                drops = self._rule.at_end == "drop" and end is not None
                parts.append(
                    PlanPart(
                        self._count_of(number, self._rule.unit),
                        self._count_of(number, self._rule.progress_unit),
                        first,
                        first + (end or 0) if drops else None,
                    )
                )
            plan = MixPlan(parts, self._rule.stages)
            newest = list(self._plans.items())[1 - MAX_PLANS :]
            self._plans = {**dict(newest), epoch: plan}
        return plan

    def keep_order(self, length: int) -> None:
        """Keep the order of the first positions, so that any of them is found fast."""
        if self._rule.at_end == "drop":
            length = min(length, len(self))  # Each epoch has a plan of its own.
        if self._kept is None or len(self._kept) < length:
            self._kept = KeptOrder(self._plan_of(0).take, length, len(self._parents))

    def _count_of(self, number: int, unit: MixUnit) -> RunningCount:
        if unit == "elements" or self._counts is None:
            return ElementCount()
        return self._counts[number]

    def _select(self, indices: Indices) -> tuple[Int64Array, Indices]:
        if indices.dtype.hasobject or (len(indices) and indices.min() < 0):
            raise IndexError(
                f"Indices of {self} must be in [0, 2**63), got {indices.tolist()[:5]}:"
                " its order begins at index 0."
            )
        if self._kept is not None and len(indices) and indices.max() < len(self._kept):
            return self._kept.take(indices)
        if self._rule.at_end == "stop":
            return self._plan_of(0).take(indices)
        epochs, offsets = epochs_and_offsets(indices, len(self))
        if len(epochs) == 1 or not np.any(epochs != epochs[0]):
            return self._plan_of(int(epochs[0])).take(offsets)
        parts, parent_indices = np.empty_like(indices), np.empty_like(indices)
        for epoch in np.unique(epochs).tolist():
            places = epochs == epoch
            found = self._plan_of(epoch).take(offsets[places])
            parts[places], parent_indices[places] = found
        return parts, parent_indices

    def lengths_of_bases(self) -> list[tuple[Any, npt.NDArray[Any]]]:
        """Return the origin of each parent, and its elements' tokens.

        The list is empty if the mixture does not count tokens.
        """
        pairs = zip(self._parents, self._counts or (), strict=False)
        return [(origin_of(parent), count.lengths) for parent, count in pairs]

    def indices_before(self, position: int) -> tuple[int, ...]:
        """Return how many elements of each parent are before a position.

        Args:
            position: A position of the mixture, at least 0.
        """
        if self._rule.at_end == "stop":
            return self._plan_of(0).indices_before(position)
        epoch, offset = divmod(position, len(self))
        return self._plan_of(epoch).indices_before(offset)

    def tokens_before(self, position: int) -> tuple[int, ...] | None:
        """Return how many tokens of each parent are before a position.

        Args:
            position: A position of the mixture, at least 0.

        Returns:
            The numbers, or None if the mixture does not count tokens.
        """
        if self._counts is None:
            return None
        pairs = zip(self._counts, self.indices_before(position), strict=True)
        return tuple(count.before(index) for count, index in pairs)


def _lengths_of_each(lengths: Any, rule: MixRule, count: int) -> list[Any]:
    """Return the lengths of each dataset, None for those of its source."""
    if lengths is None:
        return [None] * count
    if isinstance(lengths, Mapping) != (rule.names is not None):
        raise TypeError(
            "datasets and lengths must both be mappings, or both be sequences, got"
            f" {kind(lengths)} for lengths."
        )
    if isinstance(lengths, Mapping):
        names = list(rule.names or ())
        if set(lengths) != set(names):
            raise ValueError(
                f"lengths must have the names of the datasets, {sorted(names)}, got"
                f" {sorted(map(str, lengths))}."
            )
        lengths = order_by_names(lengths, names)
    if isinstance(lengths, (str, bytes)) or not isinstance(lengths, Sequence):
        raise TypeError(
            "lengths must be a list with an array, or None, for each dataset, got"
            f" {kind(lengths)}."
        )
    if len(lengths) != count:
        raise ValueError(
            f"lengths must have {count} arrays, one for each dataset, got"
            f" {len(lengths)}."
        )
    return list(lengths)
