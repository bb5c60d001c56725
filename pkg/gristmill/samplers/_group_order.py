"""The order of a group-aware shuffle: arithmetic from indices to record keys.

Groups (the row groups of Parquet files, the chunks of ArrayRecord files) are decoded
whole, so an order that jumps between all of them decodes each again and again.  Here
every epoch shuffles the groups, lays their records end to end, gives each lane an
equal piece of that line, and shuffles the records of a few neighbouring groups, a
window, among themselves.

Small windows are sorted by random numbers, many at once, and the order is kept while a
lane goes through it; large ones are permuted by arithmetic, which needs no memory.

Lane r of L takes the indices that are r modulo L.  A cut between two lanes may fall
inside a group, which both then decode: that is all that is decoded twice, L - 1 groups
an epoch at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Int64Array
from gristmill._core import KeyPlan, find_chunks
from gristmill.samplers._planned import keys_by_lane

__all__ = ["GroupOrder"]

# About so many records are sorted at once, and up to so many at all.
_SORTED, _MOST_SORTED = 1 << 12, 1 << 14

# Of the generator splitmix64.
_MASK = 2**64 - 1
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class _Line(NamedTuple):
    """The groups of one epoch, end to end in their shuffled order."""

    bounds: Int64Array  # Where each group begins on the line, and the end.
    shifts: Int64Array  # What to add to a place on the line to have its key, by group.


class GroupOrder:
    """Record keys by global index, over all epochs.

    Lanes are readers that take turns; an epoch has `length` records, and leaves out the
    last ones of its order.

    Memory is 16 bytes a group for each of the last two epochs asked for, whose set-up
    takes time in proportion to the groups, and at most 32 KiB a lane; everything else
    is independent of them.
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
        # Whole windows, of about as many records as are sorted at once.
        windows = _SORTED * len(self._sizes) // (int(self._sizes.sum()) * window)
        self._span = window * max(1, windows)
        self._seed = seed
        self._lanes = lanes
        self._length = length
        self._reshuffle = reshuffle
        self._lines: dict[int, _Line] = {}
        # The windows that each lane goes through: their epoch, the first place on the
        # line, and the places behind that in their order, uint16.
        self._mixed: dict[int, tuple[int, int, npt.NDArray[np.uint16]]] = {}

    def keys(self, first: int, step: int, count: int) -> Int64Array:
        """The record keys of the indices first, first + step, ..., count of them."""
        return keys_by_lane(self._lanes, first, step, count, self._fill)

    def window_left(self, index: int, step: int) -> int:
        """How many of the indices index, index + step, ... share a window.

        At least 1; the steps stay in a lane.
        """
        epoch, offset = divmod(index, self._length)
        line = self._line(epoch if self._reshuffle else 0)
        turn, rank = divmod(offset, self._lanes)
        begin, end = self._piece(rank), self._piece(rank + 1)
        place = begin + turn
        _, high, _ = self._around(line, place, begin, end, self._window)
        return -(-(high - place) // (step // self._lanes))

    def _fill(self, index: int, step: int, out: Int64Array) -> None:
        """Fill from one index on, in steps that stay in its lane while epochs pass."""
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
            in_memory = high - low <= _MOST_SORTED
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
        """What a lane's piece has of the `span` groups around a place.

        Returns:
            Its first place, the place behind its last, and the groups.
        """
        first, here = map(int, line.bounds.searchsorted([begin, place], "right") - 1)
        first += (here - first) // span * span
        after = min(first + span, len(self._sizes))
        low = max(begin, int(line.bounds[first]))
        return low, min(end, int(line.bounds[after])), range(first, after)

    def _mix(
        self, rank: int, epoch: int, line: _Line, low: int, high: int, groups: range
    ) -> npt.NDArray[np.uint16]:
        """The places [low, high), less `low`, in the order of a lane."""
        kept = self._mixed.get(rank)
        if kept is not None and kept[:2] == (epoch, low):
            return kept[2]
        draws = _draws(_hash(self._seed, epoch), low, high)
        bounds = line.bounds[groups.start : groups.stop : self._window]
        windows = bounds[1:].searchsorted(np.arange(low, high), "right")
        # Windows stay in their order; a tie of draws keeps the order of places.
        draws >>= np.uint64(16)
        draws |= windows.astype(np.uint64) << np.uint64(48)
        order = draws.argsort(kind="stable").astype(np.uint16)
        self._mixed[rank] = epoch, low, order
        return order

    def _piece(self, rank: int) -> int:
        """Where the piece of a lane begins; the first lanes have one record more.

        Ranks count lanes from the one that the epoch's first index is in.
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
    """A number in [0, 2**64) from integers, by the finalizer of splitmix64."""
    state = 0
    for word in words:
        state = (state ^ word) + _STEP & _MASK
        state = (state ^ state >> 30) * _FIRST & _MASK
        state = (state ^ state >> 27) * _SECOND & _MASK
        state ^= state >> 31
    return state


def _draws(seed: int, low: int, high: int) -> npt.NDArray[np.uint64]:
    """Random numbers of the places [low, high): each its own, by splitmix64."""
    state = np.arange(low, high, dtype=np.uint64)
    state *= np.uint64(_STEP)
    state += np.uint64(seed)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        state ^= state >> np.uint64(shift)
        state *= np.uint64(factor)
    state ^= state >> np.uint64(31)
    return state
