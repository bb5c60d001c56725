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
    check_rule_arguments,
    has_plain_rule,
    parse_rule,
    repeat_parts,
)
from gristmill._dataset.nodes.mix_shares import Shares, stage_at
from gristmill._dataset.nodes.repeat import RepeatIterDataset
from gristmill._hot import cancellation
from gristmill.errors import StateMismatch
from gristmill.mixing import AtEnd, MixSchedule, MixUnit, Weights


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
    if has_plain_rule(weights, unit, at_end, epochs):
        check_rule_arguments("tokens", tokens, False)
        plain_weights: Any = weights
        return MixedIterDataset(datasets, plain_weights)
    parts, rule = parse_rule(datasets, weights, unit, at_end)
    check_parents(MixedIterDataset, parts, IterDataset)
    check_rule_arguments("tokens", tokens, rule.counts_tokens)
    check_tokens(tokens)
    parts = repeat_parts(parts, epochs, rule.names, RepeatIterDataset)
    return CountedMixIterDataset(parts, rule, tokens)


class CountedMixIterDataset(ParentSpec, IterDataset[T]):
    """Takes from the parent that lags most behind its share.

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
        self._rule = rule
        self._tokens = tokens

    def __iter__(self) -> DatasetIterator[T]:
        return CountedMixDatasetIterator(self)

    def _arguments_text(self) -> str:
        return f"([{len(self._parents)} parents], {self._rule})"


class CountedMixDatasetIterator(NodeIterator[T]):
    """Iterates over a mixture, and counts what each parent has delivered.

    Attributes:
        index: The number of elements delivered.
        stopped: Whether the mixture has ended.
        elements: The number of elements that each parent has delivered.
        tokens: The number of tokens that each parent has delivered; 0 if they are not
            counted.
        ended: Whether each parent had no element at its turn.
    """

    def __init__(self, node: CountedMixIterDataset[T]) -> None:
        super().__init__(node)
        count = len(self._parents)
        self._rule = node._rule
        self._count_tokens = token_counter(node._tokens)
        self.index = 0
        self.stopped = False
        self.elements = [0] * count
        self.tokens = [0] * count
        self.ended = [False] * count
        # Entries of the state for datasets that are no longer in the mixture, by name.
        self._absent_states: dict[str, Any] = {}
        self._absent_sources: dict[str, Any] = {}
        self._set_shares(
            Shares(self._rule.stages[0].weights, (0.0,) * count, (0,) * count)
        )

    def __next__(self) -> T:
        if self.stopped:
            raise StopIteration
        if self._progress >= self._next_start:
            self._change_stage()
        dues = self._dues
        while (due := min(dues)) < math.inf:
            number = dues.index(due)
            try:
                element: T = next(self._parents[number])
            except StopIteration:
                self.ended[number] = True
                dues[number] = math.inf
                if self._rule.at_end == "stop":
                    break
                cancellation.check()
                continue
            except Exception as error:
                error.add_note(
                    f"Exception caught while processing dataset @ input_index={number}"
                )
                raise
            self._count(number, element)
            return element
        self.stopped = True
        raise StopIteration

    def _count(self, number: int, element: Any) -> None:
        """Count an element of a parent, and compute when the parent is due next."""
        tokens = 0
        if self._rule.counts_tokens and element is not None:
            try:
                tokens = self._count_tokens(element)
            except Exception as error:
                self._note_failure(error)
                raise
        self.index += 1
        self.elements[number] += 1
        self.tokens[number] += tokens
        self._progress += tokens if self._rule.progress_unit == "tokens" else 1
        self._dues[number] = self._shares.due(number, self._delivered[number])

    @property
    def _delivered(self) -> list[int]:
        """What each parent has delivered of what its weight is a share of."""
        return self.tokens if self._rule.unit == "tokens" else self.elements

    def _set_shares(self, shares: Shares) -> None:
        """Set the weights.  The next call of `__next__` checks the stage."""
        self._shares = shares
        self._dues = [
            math.inf if ended else shares.due(number, delivered)
            for number, (delivered, ended) in enumerate(
                zip(self._delivered, self.ended, strict=True)
            )
        ]
        absent = self._absent_sources.values()
        self._progress = self.index
        if self._rule.progress_unit == "tokens":
            self._progress = sum(self.tokens) + sum(each["tokens"] for each in absent)
        # The progress at which the stage is checked.
        self._next_start: float = 0

    def _change_stage(self) -> None:
        """Set the weights of the current stage."""
        # Streams share the elements: each has this part of the progress.
        streams = self._ctx.mp_context.process_count
        stages = self._rule.stages
        stage = stage_at(stages, self._progress * streams)
        weights = stages[stage].weights
        if weights != self._shares.weights:
            self._set_shares(
                self._shares.with_weights(weights, self._delivered, self.ended)
            )
        following = stages[stage + 1 :]
        self._next_start = following[0].start / streams if following else math.inf

    def get_state(self) -> Any:
        """Return the position and the counts, and the states of the parents."""
        parents: Any = [parent.get_state() for parent in self._parents]
        sources: Any = [self._source_state(n) for n in range(len(parents))]
        names = self._rule.names
        if names is not None:
            parents = dict(zip(names, parents, strict=True)) | self._absent_states
            sources = dict(zip(names, sources, strict=True)) | self._absent_sources
        return {
            "parents": parents,
            "index": self.index,
            "stop": self.stopped,
            "sources": sources,
        }

    def _source_state(self, number: int) -> dict[str, Any]:
        return {
            "elements": self.elements[number],
            "tokens": self.tokens[number],
            "ended": self.ended[number],
            "weight": self._shares.weights[number],
            "lead": self._shares.leads[number],
            "base": self._shares.bases[number],
        }

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
        keys = ["elements", "tokens", "ended", "weight", "lead", "base"]
        states.check_keys(self, source, keys)
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

    def _go_to(self, state: Any) -> None:
        # Datasets that are missing in the state start from the beginning.  Entries of
        # datasets that are only in the state are kept, in case these come back.
        names, sources = self._rule.names, state["sources"]
        if names is not None:
            absent = [name for name in sources if name not in names]
            self._absent_sources = {name: sources[name] for name in absent}
            self._absent_states = {name: state["parents"][name] for name in absent}
        new = {"elements": 0, "tokens": 0, "ended": False}
        new |= {"weight": 0.0, "lead": 0.0, "base": 0}
        entries = []
        for number, parent in enumerate(self._parents):
            found = self._entry(state["parents"], number)
            entries.append(new if found is None else self._entry(sources, number))
            if found is not None:
                parent.set_state(found)
        self.index = state["index"]
        self.stopped = bool(state["stop"])
        self.elements = [each["elements"] for each in entries]
        self.tokens = [each["tokens"] for each in entries]
        self.ended = [bool(each["ended"]) for each in entries]
        self._set_shares(
            Shares(
                tuple(float(each["weight"]) for each in entries),
                tuple(float(each["lead"]) for each in entries),
                tuple(each["base"] for each in entries),
            )
        )
