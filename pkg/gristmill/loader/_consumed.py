"""Counts the records that the iterator of a `DataLoader` has delivered."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from gristmill import samplers, transforms
from gristmill._base.source_counts import SourceCount
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.parallel.consumed import MAX_REPORTED_INDICES
from gristmill._dataset.parallel.index_counts import TooManyIndices
from gristmill._dataset.parallel.source_list import SourceList, Tally
from gristmill._engine.compilation import LoaderProgram
from gristmill._engine.program import as_number
from gristmill._engine.stream import Position
from gristmill._engine.stream_keys import StreamKeys
from gristmill.operations import FilterOperation
from gristmill.sharding import Remainder

# The number of records whose keys are computed at once.
CHUNK = 1 << 18
# The number of keys of a block that take as long as one of a user's sampler.
SLOW_KEY = 1 << 6
# Operations after which the records of an incomplete batch are not known.
_UNEVEN = (
    transforms.BucketBatch,
    transforms.Filter,
    transforms.FlatMap,
    FilterOperation,
)


class _LoaderSource(MapDataset[Any]):
    """The source of a loader, which may have no length, and names as keys."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        return self._source[index]


class LoaderCounter:
    """Counts from states; it counts only what was delivered since its last count.

    Args:
        loader: The `DataLoader`.
        lengths: The number of tokens of each record, by the name of the source.

    Raises:
        TypeError: An operation holds back records that no state describes.
        ValueError: `lengths` does not fit the source.
    """

    def __init__(self, loader: Any, lengths: Mapping[str, Any] | None) -> None:
        program: LoaderProgram = loader._program
        if program.opaque:
            raise TypeError(
                "Records that an operation of this DataLoader holds back are not known,"
                " so delivered ones cannot be counted. Use transforms in place of"
                " operations over iterators, or a chain of datasets."
            )
        self._loader = loader
        self._sources = SourceList(_LoaderSource(program.source), lengths)
        self._batches = [
            op for op in loader._operations if isinstance(op, transforms.Batch)
        ]
        self._is_uneven = program.on_error == "skip" or any(
            isinstance(op, _UNEVEN) for op in loader._operations
        )
        # The epoch and the streams of the last count.
        self._order: tuple[int, int] | None = None
        # Records that were counted from some indices on: their end, and their numbers.
        self._counted: dict[int, tuple[int, Tally]] = {}
        # The records whose keys may still be computed.
        self._remaining = 0

    def count(self, state: bytes) -> dict[str, SourceCount]:
        """Return what was delivered before a state, by the name of the source."""
        return self._count(state, sys.maxsize)

    def count_fast(self, state: bytes) -> dict[str, SourceCount]:
        """Return the counts, or an empty dict if counting would take long."""
        try:
            return self._count(state, MAX_REPORTED_INDICES)
        except TooManyIndices:
            return {}

    def _count(self, state: bytes, limit: int) -> dict[str, SourceCount]:
        position = self._loader._restore(state, False)
        program = self._loader._program_for(position)
        self._remaining = limit
        streams = position.streams
        if self._order != (position.epoch, streams):
            self._order, self._counted = (position.epoch, streams), {}
        ends = [
            self._delivered(program, stream, each)
            for stream, each in enumerate(position.positions)
        ]
        # All streams together have delivered the records before this one.
        common = min(stream + end * streams for stream, end in enumerate(ends))
        tally = self._count_before(dataclasses.replace(program, streams=1), common)
        for stream, end in enumerate(ends):
            first = -(-(common - stream) // streams)
            tally.add(self._count_range(program, stream, first, end))
        if program.buckets is not None:
            for stream, (_, *waiting) in enumerate(position.positions):
                for place in waiting:
                    record = self._count_range(program, stream, place, place + 1)
                    tally.add(record, -1)
        return self._sources.counts_of(tally)

    def _delivered(
        self, program: LoaderProgram, stream: int, position: Position
    ) -> int:
        """Return the number of records of a stream's outputs before a position."""
        length, end = program.stream_length(stream), position[0]
        if program.flat_maps:  # Splits of the next record may be delivered.
            return min(end + any(position[1:]), length)
        if end < length or self._is_uneven:
            return end
        # Records of an incomplete batch may have been dropped at the end.
        size = 1
        for batch in self._batches:
            groups = -(-end // size)
            size *= batch.batch_size
            if batch.drop_remainder:
                end = min(end, groups // batch.batch_size * size)
        return end

    def _count_before(self, program: LoaderProgram, end: int) -> Tally:
        """Return a new tally of the first records of this shard."""
        period = _period(program)
        epoch, _ = divmod(end, period) if period else (0, end)
        tally = Tally(1)
        if epoch:
            tally.add(self._count_from(program, 0, period), epoch)
        return tally.add(self._count_from(program, epoch * period, end))

    def _count_from(self, program: LoaderProgram, first: int, end: int) -> Tally:
        """Count records, except for those that were counted before."""
        done, tally = self._counted.get(first, (first, Tally(1)))
        if done > end:
            done, tally = first, Tally(1)
        tally = tally.plus(self._count_range(program, 0, done, end))
        # Keep the first epoch, and the last one.
        kept = {0: self._counted[0]} if 0 in self._counted else {}
        self._counted = kept | {first: (end, tally)}
        return tally

    def _count_range(
        self, program: LoaderProgram, stream: int, first: int, end: int
    ) -> Tally:
        """Return the numbers of the records at positions [first, end) of a stream."""
        tally = Tally(1)
        has_lengths, sampler = self._sources.has_lengths(0), program.sampler
        has_padding = (
            isinstance(sampler, samplers.DistributedSampler)
            and sampler.remainder is Remainder.PAD
        )
        if not has_lengths and not has_padding:
            tally.elements[0] = max(end - first, 0)
            return tally
        stream_keys = StreamKeys(program, stream)
        for begin in range(first, end, CHUNK):
            count = min(CHUNK, end - begin)
            self._remaining -= count if program.in_blocks else SLOW_KEY * count
            if self._remaining < 0:
                raise TooManyIndices
            if program.in_blocks:
                keys, indices = stream_keys.compute_block(begin, count)
                keys = keys[sampler.is_real(indices)] if has_padding else keys
            else:
                names = stream_keys.source_keys(begin, count)
                keys = np.array([as_number(name) for name in names], np.int64)
                if len(keys) and keys.min() < 0:
                    name = names[int(keys.argmin())]
                    raise TypeError(
                        "To count tokens, the keys of records must be ints of at least"
                        f" 0, got {name!r}."
                    )
            tally.elements[0] += len(keys)
            if has_lengths:
                tally.tokens[0] += self._sources.tokens_of(0, keys)
        return tally


def _period(program: LoaderProgram) -> int:
    """Return the records of an epoch if all epochs have the same ones, otherwise 0."""
    sampler = program.sampler
    if type(sampler) is not samplers.IndexSampler:
        return 0
    if sampler._shard_count != program.shard.shard_count:
        return 0
    return len(sampler.plan())
