"""Computes outputs of a chain again in this thread, and counts their records."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gristmill._dataset.model.blocks import block_of, indices_from
from gristmill._dataset.model.names import node_line
from gristmill._dataset.model.observer import suppress_observation
from gristmill._dataset.model.states import MAX_FAILURES
from gristmill._dataset.nodes.concat_split import ConcatThenSplitIterDataset
from gristmill._dataset.nodes.flat_map import FlatMapBase
from gristmill._dataset.nodes.plan_packing import PackMapDataset
from gristmill._dataset.parallel.record_tracing import ChainTracer
from gristmill._dataset.parallel.single_thread import SingleThreadCopier
from gristmill._dataset.parallel.source_list import SourceList, Tally, nodes_of
from gristmill._dataset.parallel.traced_element import (
    UNKNOWN_END,
    Ids,
    TracedElement,
    ids_of,
)
from gristmill._hot import cancellation
from gristmill.errors import StateMismatch

# The most elements that are computed at once.
BLOCK = 512
# Nodes whose rows have parts of records.
_SPLITTING = (ConcatThenSplitIterDataset, PackMapDataset)
# The keys of positions of sources in states.
_POSITION_KEYS = ("next_index", "elements_read")


class TracedRun:
    """Counts the records of outputs of a chain.  A record that fails does not count.

    Args:
        dataset: The last dataset of the chain.
        state: The state before the first output; None for the beginning.
        sources: The sources of the whole chain.
    """

    def __init__(self, dataset: Any, state: Any, sources: SourceList) -> None:
        nodes = list(nodes_of(dataset))
        self._dataset = dataset
        self._state = state
        self._sources = sources
        self._tally = Tally(len(sources))
        # True if outputs have parts of records.
        self._splits = any(isinstance(node, _SPLITTING) for node in nodes)
        # The records that were counted, if several outputs may have the same one.
        self._seen: set[tuple[int, ...]] | None = None
        if any(isinstance(node, FlatMapBase) for node in nodes):
            self._seen = set()

    @property
    def can_continue(self) -> bool:
        """True if another run may count from the final state of this one."""
        return self._seen is None

    def has_next(self) -> bool:
        """Return whether there is an output, or an error in its place."""
        try:
            next(self._iterator)
        except StopIteration:
            return False
        except Exception:
            return True
        return True

    def add_all(self) -> Tally:
        """Count all outputs."""
        for traced in self._outputs():
            self._add(ids_of(traced))
        return self._tally

    def add_outputs(self, count: int) -> Tally:
        """Count the next `count` outputs."""
        for traced in self._next_outputs(count):
            self._add(ids_of(traced))
        return self._tally

    def add_outputs_at(self, offsets: Sequence[int]) -> Tally:
        """Count the outputs at some places, in ascending order."""
        for place, traced in enumerate(self._next_outputs(offsets[-1] + 1)):
            if place in offsets:
                self._add(ids_of(traced))
        return self._tally

    def add_rows(self, count: int) -> Tally:
        """Count the first rows of the next output, which is a batch."""
        for traced in self._next_outputs(1):
            if traced is not None:  # One record may have all rows.
                self._add(np.concatenate(traced.rows[:count]))
        return self._tally

    def add_beginning(self, tokens: int) -> Tally:
        """Count the first tokens of the record in the next output."""
        for traced in self._next_outputs(1):
            ids = ids_of(traced).copy()
            ids["begin"], ids["end"] = 0, tokens
            self._splits = True
            self._add(ids)
        return self._tally

    def add_until(self, state: Any) -> Tally | None:
        """Count the outputs up to a state; return None if it does not occur."""
        target = _comparable(state)
        outputs = self._outputs()
        while True:
            found = self._iterator.get_state()
            if _comparable(found) == target:
                return self._tally
            if _is_after(found, state):
                return None
            try:
                traced = next(outputs)
            except StopIteration:
                # It is between the last output and the end, because a thread that works
                # ahead does not report the end.
                is_beyond = _is_after(state, self._iterator.get_state())
                return None if is_beyond else self._tally
            self._add(ids_of(traced))

    def add_indices(self, dataset: Any, begin: int, end: int) -> Tally:
        """Count the elements of a `MapDataset` of the chain that are not absent."""
        if begin < end:
            traced = ChainTracer(self._sources).copy(dataset)
            for first in range(begin, end, BLOCK):
                cancellation.check()
                indices = indices_from(first, min(BLOCK, end - first))
                self._add(ids_of(*_read(traced, indices)))
        return self._tally

    def mismatch(self, state: Any) -> StateMismatch:
        """Return the error for a state that does not occur."""
        return StateMismatch(
            f"{node_line(self._dataset)} does not have the state {state!r:.200}. Pass a"
            " state of this chain, with unchanged data."
        )

    @functools.cached_property
    def _iterator(self) -> Any:
        copier = SingleThreadCopier(ChainTracer(self._sources), BLOCK)
        with suppress_observation():
            iterator = iter(copier.copy(self._dataset))
        if self._state is not None:
            iterator.set_state(self._state)
        return iterator

    def _next_outputs(self, count: int) -> Iterator[TracedElement | None]:
        for _, traced in zip(range(count), self._outputs(), strict=False):
            yield traced

    def _outputs(self) -> Iterator[TracedElement | None]:
        """Yield outputs, without those that fail."""
        failures = 0
        while True:
            cancellation.check()
            try:
                traced: TracedElement | None = next(self._iterator)
            except StopIteration:
                return
            except Exception:
                failures += 1
                if failures > MAX_FAILURES:
                    raise
                continue
            failures = 0
            yield traced

    def _add(self, ids: Ids) -> None:
        """Count records, or the parts of them."""
        sources, tally = self._sources, self._tally
        if self._seen is not None:
            ids = self._without_seen(ids, self._seen)
        for number in np.unique(ids["source"]).tolist():
            own = ids[ids["source"] == number]
            tally.elements[number] += int(np.count_nonzero(own["begin"] == 0))
            if self._splits or not sources.has_lengths(number):
                own = own[own["end"] != UNKNOWN_END]
                tally.tokens[number] += int((own["end"] - own["begin"]).sum())
            else:
                tally.tokens[number] += sources.tokens_of(number, own["key"])

    def _without_seen(self, ids: Ids, seen: set[tuple[int, ...]]) -> Ids:
        """Return the ids of records that were not counted before."""
        new = []
        for place, record in enumerate(ids[["source", "key", "epoch"]].tolist()):
            if record not in seen:
                seen.add(record)
                new.append(place)
        return ids[new]


def _read(dataset: Any, indices: Any) -> list[TracedElement | None]:
    """Return the elements at some indices; None for those that fail."""
    try:
        return block_of(dataset, indices)
    except StopIteration:
        raise
    except Exception:
        if len(indices) == 1:
            return [None]
    elements = []
    for place in range(len(indices)):
        elements += _read(dataset, indices[place : place + 1])
    return elements


def _comparable(state: Any) -> Any:
    """Return a state with the types that JSON has."""
    if isinstance(state, Mapping):
        return {str(key): _comparable(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [_comparable(each) for each in state]
    return state


def _is_after(state: Any, other: Any) -> bool:
    """Return True if a state is certainly after another one of the same chain."""
    epochs, indices = _progress(state)
    other_epochs, other_indices = _progress(other)
    if epochs != other_epochs or len(indices) != len(other_indices):
        return epochs > other_epochs
    pairs = list(zip(indices, other_indices, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _progress(state: Any) -> tuple[int, list[int]]:
    """Return the sum of all epochs in a state, and all positions of sources."""
    epochs, indices = 0, []
    parts = [state]
    for part in parts:
        if isinstance(part, Mapping):
            epochs += part.get("epoch") or 0
            indices += [part[key] for key in _POSITION_KEYS if key in part]
            parts += part.values()
        elif isinstance(part, (list, tuple)):
            parts += part
    return epochs, indices
