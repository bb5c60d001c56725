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
_SORTED, _MAX_SORTED = 1 << 12, 1 << 14

# Constants of the generator splitmix64.
_MASK = 2**64 - 1
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class _Line(NamedTuple):
    """The groups of one epoch, end to end in their shuffled order."""

    bounds: Int64Array  # The start of each group on the line, and the end.
    shifts: Int64Array  # The key of a place on the line minus the place, by group.


class GroupOrder:
    """Computes record keys from global indices, over all epochs.

    Lanes are readers that take turns. An epoch has `length` records; any further
    records at the end of its order are left out.

    Memory use is 16 bytes per group for each of the two latest epochs, and at most 32
    KiB per lane. The set-up of an epoch takes time in proportion to the groups. All
    other costs are independent of the number of groups and lanes.
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
        self._starts = starts[groups > 0]
        self._sizes = groups[groups > 0]
        self._window = window
        # Whole windows, which together have about the target number of records.
        windows = _SORTED * len(self._sizes) // (int(self._sizes.sum()) * window)
        self._span = window * max(1, windows)
        self._seed = seed
        self._lanes = lanes
        self._length = length
        self._reshuffle = reshuffle
        self._lines: dict[int, _Line] = {}
        # The windows that each lane is in: their epoch, their first place on the line,
        # and the shuffled places relative to it, uint16.
        self._shuffled_windows: dict[int, tuple[int, int, npt.NDArray[np.uint16]]] = {}

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
        begin, end = self._piece(rank), self._piece(rank + 1)
        place = begin + turn
        _, high, _ = self._around(line, place, begin, end, self._window)
        return -(-(high - place) // (step // self._lanes))

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
        if not self._reshuffle:
            epoch = 0
        line = self._line(epoch)
        turn, rank = divmod(offset, self._lanes)
        begin, end = self._piece(rank), self._piece(rank + 1)
        stride = step // self._lanes
        place = begin + turn
        done = 0
        while done < len(out):
            low, high, groups = self._around(line, place, begin, end, self._span)
            in_memory = high - low <= _MAX_SORTED
            if not in_memory and self._span > self._window:
                low, high, _ = self._around(line, place, begin, end, self._window)
            count = min(len(out) - done, -(-(high - place) // stride))
            part = out[done : done + count]
            if in_memory:
                order = self._mix(rank, epoch, line, low, high, groups)
                part[:] = order[place - low :: stride][:count]
                part += low
            else:
                seed = _hash(self._seed, epoch, low) >> 32
                plan = KeyPlan.range(high - low, low).shuffle(seed)
                plan.fill(place - low, stride, part)
            done += count
            place += count * stride
        found, numbers, _ = find_chunks(line.bounds, out)
        out += line.shifts[found][numbers]

    def _around(
        self, line: _Line, place: int, begin: int, end: int, span: int
    ) -> tuple[int, int, range]:
        """Return the part of a lane's piece in the `span` groups around a place.

        Returns:
            Its first place, the place after its last, and the groups.
        """
        first, here = map(int, line.bounds.searchsorted([begin, place], "right") - 1)
        first += (here - first) // span * span
        after = min(first + span, len(self._sizes))
        low = max(begin, int(line.bounds[first]))
        return low, min(end, int(line.bounds[after])), range(first, after)

    def _mix(
        self, rank: int, epoch: int, line: _Line, low: int, high: int, groups: range
    ) -> npt.NDArray[np.uint16]:
        """Return the places [low, high), minus `low`, in the order of a lane."""
        shuffled = self._shuffled_windows.get(rank)
        if shuffled is not None and shuffled[:2] == (epoch, low):
            return shuffled[2]
        draws = _draws(_hash(self._seed, epoch), low, high)
        bounds = line.bounds[groups.start : groups.stop : self._window]
        windows = bounds[1:].searchsorted(np.arange(low, high), "right")
        # Windows keep their order; equal draws keep the order of places.
        draws >>= np.uint64(16)
        draws |= windows.astype(np.uint64) << np.uint64(48)
        order = draws.argsort(kind="stable").astype(np.uint16)
        self._shuffled_windows[rank] = epoch, low, order
        return order

    def _piece(self, rank: int) -> int:
        """Return the start of a lane's piece; the first lanes have one record more.

        Ranks count lanes from the lane of the epoch's first index.
        """
        each, rest = divmod(self._length, self._lanes)
        return rank * each + min(rank, rest)

    def _line(self, epoch: int) -> _Line:
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
        state = (state ^ word) + _STEP & _MASK
        state = (state ^ state >> 30) * _FIRST & _MASK
        state = (state ^ state >> 27) * _SECOND & _MASK
        state ^= state >> 31
    return state


def _draws(seed: int, low: int, high: int) -> npt.NDArray[np.uint64]:
    """Return a random number for each place in [low, high), by splitmix64."""
    state = np.arange(low, high, dtype=np.uint64)
    state *= np.uint64(_STEP)
    state += np.uint64(seed)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        state ^= state >> np.uint64(shift)
        state *= np.uint64(factor)
    state ^= state >> np.uint64(31)
    return state
