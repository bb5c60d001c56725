"""Counts the records of each source in a range of indices of a `MapDataset`.

No element is computed.  Ranges that are whole epochs of an order are counted as such,
and other indices are mapped to those of the sources.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gristmill._base.types import Indices, Int64Array
from gristmill._dataset.model.blocks import StepMapDataset, ancestor_of, indices_from
from gristmill._dataset.model.names import node_line
from gristmill._dataset.nodes.batch import BatchMapDataset
from gristmill._dataset.nodes.mix import (
    ConcatenateMapDataset,
    MixedMapDataset,
    SelectionMapDataset,
)
from gristmill._dataset.nodes.order import (
    RepeatMapDataset,
    ShuffleMapDataset,
    SliceMapDataset,
)
from gristmill._dataset.nodes.plan_packing import PackMapDataset
from gristmill._dataset.nodes.planned_mix import PlannedMixMapDataset
from gristmill._dataset.nodes.shard import PadMapDataset
from gristmill._dataset.nodes.window_shuffle import WindowShuffleMapDataset
from gristmill._dataset.nodes.with_options import (
    WithOptionsMapDataset,
    WithSeedMapDataset,
)
from gristmill._dataset.nodes.zip import ZipMapDataset
from gristmill._dataset.parallel.source_list import (
    SourceList,
    Tally,
    is_source,
    nodes_of,
)

# The number of indices that are mapped at once.
CHUNK = 1 << 18
# If a range has more epochs, its indices are mapped instead.
MAX_EPOCHS = 1 << 12
# Nodes whose epochs are ranges of epochs of their parents.
_EPOCHS_OF_PARENTS = (SliceMapDataset, ConcatenateMapDataset, BatchMapDataset)
# Turns of a mixture that are first searched for one of each part.
FIRST_TURNS = 1 << 10


class Records(NamedTuple):
    """Records of one source.

    Attributes:
        number: The number of the source.
        indices: The index of each record in the source over all epochs, shape (n,).
        places: The place of the index that each belongs to, of those that were passed.
        begins: The first token of each part of a record in a packed row; None for whole
            records.
        ends: The token after its last one.
    """

    number: int
    indices: Indices
    places: Int64Array
    begins: Int64Array | None = None
    ends: Int64Array | None = None


def is_sparse(dataset: Any) -> bool:
    """Return whether elements at some indices may be absent."""
    return any(node._SPARSE is not None for node in nodes_of(dataset))


def find_records(
    sources: SourceList, node: Any, indices: Indices, places: Int64Array
) -> Iterator[Records]:
    """Yield the records that elements at some indices are made of.

    Args:
        sources: The sources of the chain.
        node: A dataset of the chain without absent elements.
        indices: Indices of the dataset, at least 0, shape (n,).
        places: A number for each index, which its records get.

    Raises:
        TypeError: The records of a node's elements are not known.
    """
    while not is_source(node):
        if isinstance(node, PadMapDataset):
            _, offsets = node._epochs_and_places(indices)
            kept = offsets < len(node._parent)  # The others are padding.
            indices, places = indices[kept], places[kept]
        ancestor = ancestor_of(node)
        if ancestor is None:
            yield from _find_in_parents(sources, node, indices, places)
            return
        indices, node = node._to_ancestor_indices(indices), ancestor
    yield Records(sources.number_of(node), indices, places)


def _find_in_parents(
    sources: SourceList, node: Any, indices: Indices, places: Int64Array
) -> Iterator[Records]:
    """Yield the records of elements of several parents, or of several elements."""
    if isinstance(node, ZipMapDataset):
        for part in node._parents:
            yield from find_records(sources, part, indices, places)
    elif isinstance(node, PackMapDataset):
        yield from _find_spans(sources, node, indices, places)
    elif isinstance(node, SelectionMapDataset):
        for number, chosen, part_indices in node.by_parent(indices):
            part = node._parents[number]
            yield from find_records(sources, part, part_indices, places[chosen])
    elif isinstance(node, BatchMapDataset):
        found = _elements_of(node, indices, places)
        yield from find_records(sources, node._parent, *found)
    else:
        raise TypeError(
            f"The records of the elements of {node_line(node)} are not known, so they"
            " cannot be counted."
        )


def _find_spans(
    sources: SourceList, node: PackMapDataset, indices: Indices, places: Int64Array
) -> Iterator[Records]:
    """Yield the parts of records that packed rows are made of."""
    spans, documents = node.locate(indices)
    places = np.repeat(places, np.diff(spans.offsets))
    of_span = np.arange(len(documents))
    for records in find_records(sources, node._parent, documents, of_span):
        found = records.places
        yield Records(
            records.number,
            records.indices,
            places[found],
            spans.begins[found],
            spans.ends[found],
        )


def _elements_of(
    node: BatchMapDataset[Any], indices: Indices, places: Int64Array
) -> tuple[Indices, Int64Array]:
    """Return the parent's index of each element of some batches, and its place."""
    firsts, ends = (_batch_start(node, each) for each in (indices, indices + 1))
    ends = np.minimum(ends, firsts + node._batch_size)
    epochs = indices // node._length
    ends = np.minimum(ends, (epochs + 1) * node._parent_length)
    counts = (ends - firsts).astype(np.int64)
    starts = np.cumsum(counts) - counts
    offsets = np.arange(counts.sum()) - np.repeat(starts, counts)
    return np.repeat(firsts, counts) + offsets, np.repeat(places, counts)


def _batch_start(node: BatchMapDataset[Any], index: Any) -> Any:
    """Return the parent's index of the first element of a batch."""
    epoch, offset = index // node._length, index % node._length
    return epoch * node._parent_length + offset * node._batch_size


class IndexCounter:
    """Counts the records of ranges of indices.

    Args:
        sources: The sources of the chain.
        limit: The most indices to map; None for no limit.

    Raises:
        TooManyIndices: From any method: the limit is reached.
        TypeError: From any method: the records of a node's elements are not known.
    """

    def __init__(self, sources: SourceList, limit: int | None = None) -> None:
        self._sources = sources
        self._remaining = sys.maxsize if limit is None else limit

    def count(self, dataset: Any, begin: int, end: int) -> Tally:
        """Return the records of elements [begin, end) of a dataset."""
        tally = Tally(len(self._sources))
        self._add(dataset, begin, end, tally)
        return tally

    def _add(self, node: Any, begin: int, end: int, tally: Tally) -> None:
        while begin < end and not is_source(node):
            if not self._keeps_indices(node):
                break
            node = node._parent
        if begin >= end:
            return
        if is_source(node):
            self._add_records(node, begin, end, tally)
        elif isinstance(node, RepeatMapDataset):  # Without new orders.
            self._add_repeated(node, begin, end, tally)
        elif isinstance(node, (ShuffleMapDataset, WindowShuffleMapDataset)):
            self._add_shuffled(node, begin, end, tally)
        elif isinstance(node, ZipMapDataset):
            for part in node._parents:
                self._add(part, begin, end, tally)
        elif isinstance(node, MixedMapDataset) and node._selection_map is None:
            self._add_mixed(node, begin, end, tally)
        elif isinstance(node, PlannedMixMapDataset):
            self._add_planned_mix(node, begin, end, tally)
        elif isinstance(node, _EPOCHS_OF_PARENTS):
            self._add_epochs(node, begin, end, tally)
        else:
            self._add_indices(node, begin, end, tally)

    def _keeps_indices(self, node: Any) -> bool:
        """Return whether an element has the same index in the parent."""
        if isinstance(node, RepeatMapDataset):
            return node._reseed_each_epoch
        if isinstance(node, SliceMapDataset):
            return (node._start, node._step) == (0, 1) and len(node) == len(
                node._parent
            )
        return isinstance(
            node, (StepMapDataset, WithOptionsMapDataset, WithSeedMapDataset)
        )

    def _add_records(self, source: Any, begin: int, end: int, tally: Tally) -> None:
        sources = self._sources
        number, length = sources.number_of(source), len(source)
        tally.elements[number] += end - begin
        if not sources.has_lengths(number):
            return
        first, last = begin // length, end // length
        tokens = (last - first) * sources.all_tokens_of(number)
        tokens -= sources.tokens_of(number, slice(begin % length))
        tokens += sources.tokens_of(number, slice(end % length))
        tally.tokens[number] += tokens

    def _add_repeated(self, node: Any, begin: int, end: int, tally: Tally) -> None:
        length = len(node._parent)
        whole = self.count(node._parent, 0, length)
        tally.add(whole, end // length - begin // length)
        tally.add(self.count(node._parent, 0, begin % length), -1)
        tally.add(self.count(node._parent, 0, end % length))

    def _add_shuffled(self, node: Any, begin: int, end: int, tally: Tally) -> None:
        """Count whole epochs, and map the indices of the others."""
        length = len(node._parent)
        first, last = -(-begin // length) * length, end // length * length
        if first > last:
            first = last = end
        self._add(node._parent, first, last, tally)
        self._add_indices(node, begin, first, tally)
        self._add_indices(node, max(first, last), end, tally)

    def _add_mixed(self, node: Any, begin: int, end: int, tally: Tally) -> None:
        firsts, ends = (_turns_before(node, turn) for turn in (begin, end))
        self._add_parts(node, firsts, ends, tally)

    def _add_planned_mix(self, node: Any, begin: int, end: int, tally: Tally) -> None:
        length = len(node)
        epochs = range(begin // length, -(-end // length))
        if node._rule.at_end == "stop":  # The plan has all epochs.
            epochs, length = range(1), end
        for epoch in epochs:
            start, plan = epoch * length, node._plan_of(epoch)
            first, last = max(begin - start, 0), min(end - start, length)
            begins, ends = plan.indices_before(first), plan.indices_before(last)
            self._add_parts(node, begins, ends, tally)

    def _add_parts(
        self, node: Any, begins: Sequence[int], ends: Sequence[int], tally: Tally
    ) -> None:
        for part, begin, end in zip(node._parents, begins, ends, strict=True):
            self._add(part, begin, end, tally)

    def _add_epochs(self, node: Any, begin: int, end: int, tally: Tally) -> None:
        """Count each epoch of a node whose epochs are ranges of its parents'."""
        length = len(node)
        first, last = begin // length, -(-end // length)
        if last - first > MAX_EPOCHS or (
            isinstance(node, SliceMapDataset) and node._step != 1
        ):
            self._add_indices(node, begin, end, tally)
            return
        for epoch in range(first, last):
            own_begin = max(begin - epoch * length, 0)
            own_end = min(end - epoch * length, length)
            for part, part_begin, part_end in _ranges_in_epoch(
                node, own_begin, own_end
            ):
                start = epoch * len(part)
                self._add(part, start + part_begin, start + part_end, tally)

    def _add_indices(self, node: Any, begin: int, end: int, tally: Tally) -> None:
        """Map indices to those of the sources, and count them."""
        if begin >= end:
            return
        source = self._only_source(node)
        if source is not None and not self._sources.has_lengths(source):
            tally.elements[source] += end - begin
            return
        self._remaining -= end - begin
        if self._remaining < 0:
            raise TooManyIndices
        for first in range(begin, end, CHUNK):
            indices = indices_from(first, min(CHUNK, end - first))
            places = np.arange(len(indices))
            for records in find_records(self._sources, node, indices, places):
                self.add_records(records, tally)

    def add_records(self, records: Records, tally: Tally) -> None:
        """Count records, or the parts of records in packed rows."""
        number = records.number
        if records.begins is not None and records.ends is not None:
            tally.elements[number] += int(np.count_nonzero(records.begins == 0))
            tally.tokens[number] += int((records.ends - records.begins).sum())
            return
        tally.elements[number] += len(records.indices)
        if self._sources.has_lengths(number):
            keys = records.indices % self._sources.record_count(number)
            keys = keys.astype(np.int64, copy=False)
            tally.tokens[number] += self._sources.tokens_of(number, keys)

    def _only_source(self, node: Any) -> int | None:
        """Return the source of a node with one record at each index, or None."""
        while not is_source(node):
            ancestor = ancestor_of(node)
            if ancestor is None or isinstance(node, PadMapDataset):
                return None
            node = ancestor
        return self._sources.number_of(node)


class TooManyIndices(Exception):
    """More indices must be mapped than the limit allows."""


def _ranges_in_epoch(node: Any, begin: int, end: int) -> Iterator[tuple[Any, int, int]]:
    """Yield (parent, begin, end) of elements [begin, end) of epoch 0."""
    if isinstance(node, SliceMapDataset):
        yield node._parent, node._start + begin, node._start + end
    elif isinstance(node, BatchMapDataset):
        size, length = node._batch_size, node._parent_length
        yield node._parent, begin * size, min(end * size, length)
    else:
        starts = node._starts.tolist()
        for part, start in zip(node._parents, starts, strict=False):
            first, last = max(begin - start, 0), min(end - start, len(part))
            if first < last:
                yield part, first, last


def _turns_before(node: MixedMapDataset[Any], turn: int) -> list[int]:
    """Return the number of turns of each part of a mixture before a turn."""
    counts: dict[int, int] = {}
    count, first = FIRST_TURNS, turn
    # The index of a part's next element is the number of its elements before it.
    while len(counts) < len(node._parents):
        parts, indices = node._select(indices_from(first, count))
        numbers, places = np.unique(parts, return_index=True)
        for number, place in zip(numbers.tolist(), places.tolist(), strict=True):
            counts.setdefault(number, int(indices[place]))
        first, count = first + count, min(2 * count, CHUNK)
    return [counts[number] for number in range(len(node._parents))]
