"""The order of a group-aware shuffle: arithmetic from indices to record keys.

Groups (the row groups of Parquet files, the chunks of ArrayRecord files) are decoded as
a whole, so an order that jumps between all groups would decode each one repeatedly.
Here every epoch shuffles the groups, puts their records into one line, gives each lane
an equal piece of that line, and shuffles the records of a window, which is a few
neighboring groups.

Several small windows are sorted together by random numbers, and their order is kept
while a lane goes through it.  Large windows are permuted by arithmetic, which needs no
memory.

Lane r of L takes the indices that are r modulo L.  A cut between two lanes may be
inside a group, which both lanes then decode.  This is the only repeated decoding: at
most L - 1 groups per epoch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Int64Array
from gristmill._core import KeyPlan, find_chunks
from gristmill.samplers._planned import keys_by_lane

__all__ = ["GroupOrder"]

# The number of records to sort at once: the target, and the maximum.
_TARGET_SORTED, _MAX_SORTED = 1 << 12, 1 << 14

# Constants of the generator splitmix64: the increment and the two factors.
_MASK = 2**64 - 1
_INCREMENT = 0x9E3779B97F4A7C15
_FACTOR_1, _FACTOR_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class _Line(NamedTuple):
    """The groups of one epoch, end to end in their shuffled order.

    A place is the position of a record on the line.

    Attributes:
        bounds: The first place of each group, and the end.
        shifts: For each group, the record key of a place minus the place.
    """

    bounds: Int64Array
    shifts: Int64Array


class _Span(NamedTuple):
    """Neighboring places of a lane: [low, high), in the groups `groups` of the line."""

    low: int
    high: int
    groups: range


class _ShuffledSpan(NamedTuple):
    """The order of a span.

    Attributes:
        epoch: The epoch of the line.
        low: The first place of the span.
        order: The places minus `low`, in the order of the lane.
    """

    epoch: int
    low: int
    order: npt.NDArray[np.uint16]


class GroupOrder:
    """Computes record keys from global indices, over all epochs.

    Lanes are readers that take turns. An epoch has `length` records; any further
    records at the end of its order are left out.

    Memory use is 16 bytes per group for each of the two latest epochs, and at most 32
    KiB per lane. The set-up of an epoch takes time in proportion to the groups. All
    other costs are independent of the number of groups and lanes.

    Args:
        groups: The number of records in each group, int64.
        window: The number of neighboring groups whose records are mixed.
        seed: Seed of the order.
        lanes: The number of readers.
        length: The number of records in an epoch.
        reshuffle: Whether every epoch has its own order.
    """

    def __init__(
        self,
        groups: Int64Array,
        window: int,
        seed: int,
        lanes: int,
        length: int,
        reshuffle: bool,
    ) -> None:
        starts = np.cumsum(groups) - groups
        # The first record key and the number of records of each group that has some.
        self._starts = starts[groups > 0]
        self._sizes = groups[groups > 0]
        self._window = window
        # Whole windows, which together have about the target number of records.
        windows = _TARGET_SORTED * len(self._sizes) // (int(self._sizes.sum()) * window)
        # The number of groups whose windows are sorted together.
        self._sorted_groups = window * max(1, windows)
        self._seed = seed
        self._lanes = lanes
        self._length = length
        self._reshuffle = reshuffle
        # Caches: the lines of the two latest epochs, and the latest span of each lane.
        # Entries are replaced as a whole, so that threads can share this object.
        self._lines: dict[int, _Line] = {}
        self._shuffled_spans: dict[int, _ShuffledSpan] = {}

    def keys(self, first: int, step: int, count: int) -> Int64Array:
        """Return the record keys of `count` indices first, first + step, ..."""
        return keys_by_lane(self._lanes, first, step, count, self._fill)

    def window_left(self, index: int, step: int) -> int:
        """Return how many of the indices index, index + step, ... share a window.

        The result is at least 1. The steps must stay in one lane.
        """
        epoch, offset = divmod(index, self._length)
        line = self._line(epoch if self._reshuffle else 0)
        turn, rank = divmod(offset, self._lanes)
        begin, end = self._piece_start(rank), self._piece_start(rank + 1)
        place = begin + turn
        span = self._span_around(line, place, begin, end, self._window)
        return -(-(span.high - place) // (step // self._lanes))

    def _fill(self, index: int, step: int, out: Int64Array) -> None:
        """Fill `out` from `index` on, across epochs; the steps stay in one lane."""
        done = 0
        while done < len(out):
            epoch, offset = divmod(index, self._length)
            count = min(len(out) - done, -(-(self._length - offset) // step))
            self._fill_epoch(epoch, offset, step, out[done : done + count])
            done += count
            index += count * step

    def _fill_epoch(self, epoch: int, offset: int, step: int, out: Int64Array) -> None:
        """Fill `out` from an offset in an epoch on; the steps stay in the epoch."""
        if not self._reshuffle:
            epoch = 0
        line = self._line(epoch)
        turn, rank = divmod(offset, self._lanes)
        begin, end = self._piece_start(rank), self._piece_start(rank + 1)
        stride = step // self._lanes
        place = begin + turn
        done = 0
        while done < len(out):
            span = self._span_around(line, place, begin, end, self._sorted_groups)
            is_sorted = span.high - span.low <= _MAX_SORTED
            if not is_sorted and self._sorted_groups > self._window:
                span = self._span_around(line, place, begin, end, self._window)
            low, high = span.low, span.high
            count = min(len(out) - done, -(-(high - place) // stride))
            part = out[done : done + count]
            if is_sorted:
                order = self._sort(rank, epoch, line, span)
                part[:] = order[place - low :: stride][:count]
                part += low
            else:
                # Seeds have 32 bits.
                seed = _hash(self._seed, epoch, low) >> 32
                plan = KeyPlan.range(high - low, low).shuffle(seed)
                plan.fill(place - low, stride, part)
            done += count
            place += count * stride
        # `out` has places, which the shifts of their groups convert to keys.  `numbers`
        # has the index in `groups` of each place's group.
        groups, numbers, _ = find_chunks(line.bounds, out)
        out += line.shifts[groups][numbers]

    def _span_around(
        self, line: _Line, place: int, begin: int, end: int, count: int
    ) -> _Span:
        """Return the part of a lane's piece in the `count` groups around a place.

        The piece [begin, end) is cut into spans of `count` groups, from its first group
        on.
        """
        first, group = map(int, line.bounds.searchsorted([begin, place], "right") - 1)
        first += (group - first) // count * count
        stop = min(first + count, len(self._sizes))
        low = max(begin, int(line.bounds[first]))
        return _Span(low, min(end, int(line.bounds[stop])), range(first, stop))

    def _sort(
        self, rank: int, epoch: int, line: _Line, span: _Span
    ) -> npt.NDArray[np.uint16]:
        """Return the places of a span, minus `span.low`, in the order of a lane."""
        low, high, groups = span
        shuffled = self._shuffled_spans.get(rank)
        if shuffled is not None and (shuffled.epoch, shuffled.low) == (epoch, low):
            return shuffled.order
        sort_keys = _random_numbers(_hash(self._seed, epoch), low, high)
        bounds = line.bounds[groups.start : groups.stop : self._window]
        windows = bounds[1:].searchsorted(np.arange(low, high), "right")
        # Windows keep their order; equal random numbers keep the order of places.
        # A window has at least one place, so the windows of `_MAX_SORTED` places have
        # numbers of 16 bits.
        sort_keys >>= np.uint64(16)
        sort_keys |= windows.astype(np.uint64) << np.uint64(48)
        order = sort_keys.argsort(kind="stable").astype(np.uint16)
        self._shuffled_spans[rank] = _ShuffledSpan(epoch, low, order)
        return order

    def _piece_start(self, rank: int) -> int:
        """Return the start of a lane's piece; the first lanes have one record more.

        Ranks count lanes from the lane of the epoch's first index.
        """
        per_lane, remainder = divmod(self._length, self._lanes)
        return rank * per_lane + min(rank, remainder)

    def _line(self, epoch: int) -> _Line:
        """Return the line of an epoch, which is computed unless it is in the cache."""
        line = self._lines.get(epoch)
        if line is None:
            order = np.empty(len(self._sizes), np.int64)
            # Epochs are shuffled by their number modulo 2**32.
            first = (epoch & 0xFFFFFFFF) * len(order)
            KeyPlan.range(len(order)).shuffle(self._seed).fill(first, 1, order)
            bounds = np.zeros(len(order) + 1, np.int64)
            np.cumsum(self._sizes[order], out=bounds[1:])
            line = _Line(bounds, self._starts[order] - bounds[:-1])
            newest = dict(list(self._lines.items())[-1:])
            self._lines = {**newest, epoch: line}
        return line


def _hash(*words: int) -> int:
    """Return a hash of integers in [0, 2**64), by the finalizer of splitmix64."""
    state = 0
    for word in words:
        state = (state ^ word) + _INCREMENT & _MASK
        state = (state ^ state >> 30) * _FACTOR_1 & _MASK
        state = (state ^ state >> 27) * _FACTOR_2 & _MASK
        state ^= state >> 31
    return state


def _random_numbers(seed: int, low: int, high: int) -> npt.NDArray[np.uint64]:
    """Return a random number for each place in [low, high), by splitmix64."""
    state = np.arange(low, high, dtype=np.uint64)
    state *= np.uint64(_INCREMENT)
    state += np.uint64(seed)
    for shift, factor in ((30, _FACTOR_1), (27, _FACTOR_2)):
        state ^= state >> np.uint64(shift)
        state *= np.uint64(factor)
    state ^= state >> np.uint64(31)
    return state
