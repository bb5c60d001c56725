"""Mixtures of `IterDataset` that count tokens, change weights or drop datasets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gristmill._base.argument_checks import kind
from gristmill._base.types import T
from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, NodeIterator
from gristmill._dataset.model.node import ParentSpec, builds, check_parents
from gristmill._dataset.model.token_count import Tokens, check_tokens, token_counter
from gristmill._dataset.nodes.mix import MixedIterDataset
from gristmill._dataset.nodes.mix_arguments import (
    MixRule,
    parse_mixture,
)
from gristmill._dataset.nodes.mix_shares import Shares, next_start, stage_at
from gristmill._hot import due_step
from gristmill.errors import StateMismatch
from gristmill.mixing import AtEnd, MixSchedule, MixUnit, Weights

# The most elements in a row without tokens, while weights are shares of tokens.
MAX_EMPTY = 1 << 20
# The keys of the state of each dataset: its counts, and its part of `Shares`.
_SOURCE_KEYS = ("elements", "tokens", "ended", "weight", "lead", "base")


@builds("IterDataset.mix")
def mix_iter_datasets(
    datasets: Any,
    weights: Weights | MixSchedule | None = None,
    *,
    unit: MixUnit = "elements",
    tokens: Tokens = None,
    epochs: Any = 1,
    at_end: AtEnd = "stop",
) -> IterDataset[Any]:
    """See `IterDataset.mix`."""
    datasets, rule = parse_mixture(
        IterDataset, datasets, weights, (unit, at_end), epochs, ("tokens", tokens)
    )
    if rule is None:
        plain_weights: Any = weights
        return MixedIterDataset(datasets, plain_weights)
    check_tokens(tokens)
    return CountedMixIterDataset(datasets, rule, tokens)


class CountedMixIterDataset(ParentSpec, IterDataset[T]):
    """Takes from the parent with the largest gap to its share.

    Args:
        parents: The datasets.
        rule: How they are mixed.
        tokens: How tokens of elements are counted.
    """

    _KIND = "order"

    def __init__(
        self, parents: Sequence[IterDataset[T]], rule: MixRule, tokens: Tokens
    ) -> None:
        super().__init__(parents)
        check_parents(self, parents, IterDataset)
        self._rule = rule
        self._tokens = tokens

    def __iter__(self) -> DatasetIterator[T]:
        return CountedMixDatasetIterator(self)

    def _arguments_text(self) -> str:
        return f"([{len(self._parents)} parents], {self._rule})"


class CountedMixDatasetIterator(NodeIterator[T]):
    """Iterates over a mixture, and counts what each parent has delivered.

    `DueStep` selects the parent of each element, by the rule of `mix_shares`.

    Attributes:
        counts: A `DueStep`.  Its `elements` and `tokens` are the numbers that each
            parent has delivered, in the order of `MixRule.names`.
    """

    def __init__(self, node: CountedMixIterDataset[T]) -> None:
        super().__init__(node)
        self._rule = node._rule
        tokens = node._tokens
        self.counts = due_step.DueStep(
            self._parents,
            token_counter(tokens) if self._rule.counts_tokens else None,
            tokens if isinstance(tokens, str) else None,
            not callable(tokens),
            self._rule.unit == "tokens",
            self._rule.progress_unit == "tokens",
            self._rule.at_end == "drop",
            MAX_EMPTY,
            self._rule.name_of,
        )
        count = len(self._parents)
        # Entries of the state for datasets that are no longer in the mixture, by name.
        self._absent_states: dict[str, Any] = {}
        self._absent_sources: dict[str, Any] = {}
        self._set_shares(
            Shares(self._rule.stages[0].weights, (0.0,) * count, (0,) * count)
        )

    def __next__(self) -> T:
        counts = self.counts
        if counts.progress >= self._next_start:
            self._change_stage()
        try:
            element: T = counts.take()
        except StopIteration:
            raise
        except Exception as error:
            if counts.is_counting:
                self._note_failure(error)
            raise
        return element

    def _delivered(self) -> list[int]:
        """Return what each parent has delivered of what weights are shares of."""
        by_tokens = self._rule.unit == "tokens"
        return self.counts.tokens if by_tokens else self.counts.elements

    def _set_shares(self, shares: Shares) -> None:
        """Set the weights.  The next call of `__next__` checks the stage."""
        self._shares = shares
        self.counts.set_shares(shares.weights, shares.leads, shares.bases)
        # The progress at which the stage is checked.
        self._next_start: float = 0

    def _change_stage(self) -> None:
        """Set the weights of the current stage."""
        # Streams share the elements: each has this part of the progress.
        streams = self._ctx.mp_context.process_count
        stages = self._rule.stages
        stage = stage_at(stages, self.counts.progress * streams)
        weights = stages[stage].weights
        if weights != self._shares.weights:
            shares = self._shares.with_weights(
                weights, self._delivered(), self.counts.ended
            )
            self._set_shares(shares)
        self._next_start = next_start(stages, stage) / streams

    def get_state(self) -> Any:
        """Return the position and the counts, and the states of the parents."""
        parents: Any = [parent.get_state() for parent in self._parents]
        sources: Any = self._source_states()
        names = self._rule.names
        if names is not None:
            parents = dict(zip(names, parents, strict=True)) | self._absent_states
            sources = dict(zip(names, sources, strict=True)) | self._absent_sources
        return {
            "parents": parents,
            "index": self.counts.index,
            "stop": self.counts.stopped,
            "sources": sources,
        }

    def _source_states(self) -> list[dict[str, Any]]:
        counts, shares = self.counts, self._shares
        columns = zip(
            counts.elements,
            counts.tokens,
            counts.ended,
            shares.weights,
            shares.leads,
            shares.bases,
            strict=True,
        )
        return [dict(zip(_SOURCE_KEYS, column, strict=True)) for column in columns]

    def _check_state(self, state: Any) -> None:
        states.check_keys(self, state, ["parents", "index", "stop", "sources"])
        states.count(self, state["index"], "index")
        states.flag(self, state["stop"], "stop")
        for key in ("parents", "sources"):
            self._check_names(state[key], key)
        if isinstance(state["parents"], Mapping):
            if state["parents"].keys() != state["sources"].keys():
                raise states.mismatch(self, "has other names in parents and sources")
            for source in state["sources"].values():
                self._check_source(source)
        for number, parent in enumerate(self._parents):
            found = self._entry(state["parents"], number)
            if found is not None:
                states.check_state(parent, found)
                self._check_source(self._entry(state["sources"], number))

    def _check_names(self, found: Any, key: str) -> None:
        """Raise StateMismatch if the state is of other datasets."""
        names = self._rule.names
        expected: Any = f"{len(self._parents)} datasets"
        if names is not None:
            expected, fits = names, isinstance(found, Mapping)
        else:
            is_list = isinstance(found, (list, tuple))
            fits = is_list and len(found) == len(self._parents)
        if not fits:
            is_mapping = isinstance(found, Mapping)
            text = list(found) if is_mapping else kind(found)
            raise StateMismatch(
                f"{self}: {key!r} of the state must have the same datasets, expected"
                f" {expected}, got {text}. A mixture whose datasets change needs names:"
                " IterDataset.mix({name: dataset})."
            )

    def _check_source(self, source: Any) -> None:
        states.check_keys(self, source, _SOURCE_KEYS)
        for key in ("elements", "tokens", "base"):
            states.count(self, source[key], key)
        states.flag(self, source["ended"], "ended")
        for key in ("weight", "lead"):
            number = source[key]
            is_number = isinstance(number, (int, float)) and math.isfinite(number)
            if not is_number or (key == "weight" and number < 0):
                raise states.mismatch(self, f"has {key} {number!r}, expected a number")

    def _entry(self, entries: Any, number: int) -> Any:
        """Return the entry of a dataset in a part of a state, or None."""
        names = self._rule.names
        return entries[number] if names is None else entries.get(names[number])

    def _without_weights(
        self, sources: Mapping[str, Any], absent: Sequence[str]
    ) -> dict[str, Any]:
        """Return the entries of absent datasets.  They do not lag when they come back.

        Args:
            sources: The entries of all datasets, by name.
            absent: The names of the absent ones.
        """
        entries = sources.values()
        columns = (tuple(each[key] for each in entries) for key in _SOURCE_KEYS[3:])
        shares = Shares(*columns).with_weights(
            tuple(
                0.0 if name in absent else sources[name]["weight"] for name in sources
            ),
            [each[self._rule.unit] for each in entries],
            [each["ended"] for each in entries],
        )
        values = zip(sources, shares.weights, shares.leads, shares.bases, strict=True)
        return {
            name: {**sources[name], "weight": weight, "lead": lead, "base": base}
            for name, weight, lead, base in values
            if name in absent
        }

    def _go_to(self, state: Any) -> None:
        # Datasets that are missing in the state start from the beginning.  Entries of
        # datasets that are only in the state are kept, in case these come back.
        names, sources = self._rule.names, state["sources"]
        if names is not None:
            absent = [name for name in sources if name not in names]
            self._absent_sources = self._without_weights(sources, absent)
            self._absent_states = {name: state["parents"][name] for name in absent}
        new: dict[str, Any] = dict(
            zip(_SOURCE_KEYS, (0, 0, False, 0.0, 0.0, 0), strict=True)
        )
        entries = []
        for number, parent in enumerate(self._parents):
            found = self._entry(state["parents"], number)
            entries.append(new if found is None else self._entry(sources, number))
            if found is not None:
                parent.set_state(found)
        columns: Any = (tuple(entry[key] for entry in entries) for key in _SOURCE_KEYS)
        elements, tokens, ended, weights, leads, bases = columns
        counts = self.counts
        counts.index, counts.stopped = state["index"], bool(state["stop"])
        counts.set_counts(elements, tokens, ended)
        counts.progress = counts.index
        if self._rule.progress_unit == "tokens":
            others = self._absent_sources.values()
            counts.progress = sum(tokens) + sum(each["tokens"] for each in others)
        self._set_shares(Shares(weights, leads, bases))
