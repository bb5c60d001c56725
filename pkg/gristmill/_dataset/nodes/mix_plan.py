"""The order of a mixture of `MapDataset`, computed a window of positions at a time.

Each dataset's elements are due at times that follow from their lengths alone, see
`mix_shares`.  Merging the datasets by these times gives the order.  So the elements
before any time can be counted without computing the order: a plan goes to a far
position by counting, and computes the order only near it.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Int64Array
from gristmill._dataset.nodes.mix_shares import Shares, stage_at, start_of_shares
from gristmill._dataset.nodes.running_counts import RunningCount
from gristmill.mixing import Stage

# The number of positions whose order is computed at once.
WINDOW = 1 << 12
# Up to so many positions, computing the order is faster than counting.
MAX_WALK = 1 << 16
MAX_WINDOWS = 4
MAX_POINTS = 1 << 12


@dataclasses.dataclass(frozen=True)
class PlanPart:
    """A dataset of a plan.

    Attributes:
        shares: Counts what its weight is a share of: elements or tokens.
        progress: Counts what the starts of stages count.
        first: The index of its first element in the plan.
        end: The index after its last element; None if it has no end.
    """

    shares: RunningCount
    progress: RunningCount
    first: int
    end: int | None


@dataclasses.dataclass(frozen=True)
class PlanPoint:
    """What was delivered before a position.

    Attributes:
        position: The position.
        stage: The number of the stage.
        indices: The index of the next element of each dataset.
        delivered: The share of each dataset that was delivered, from its index 0 on.
        progress: The progress of the stages.
        shares: The weights.
    """

    position: int
    stage: int
    indices: tuple[int, ...]
    delivered: tuple[int, ...]
    progress: int
    shares: Shares

    def due(self, number: int) -> float:
        """Return when a dataset is due."""
        return float(self.shares.due(number, self.delivered[number]))


@dataclasses.dataclass(frozen=True)
class PlanWindow:
    """The order of consecutive positions.

    Attributes:
        start: What was delivered before the window.
        parts: The number of the dataset at each position.
        indices: The index in that dataset.
        end: What was delivered before the end of the window.
    """

    start: PlanPoint
    parts: Int64Array
    indices: Int64Array
    end: PlanPoint

    def contains(self, position: int) -> bool:
        """Return whether a position is in the window."""
        return self.start.position <= position < self.end.position


class MixPlan:
    """Maps positions of a mixture to datasets and indices in them.

    Any thread may call.

    Args:
        parts: The datasets.
        stages: The stages of weights.
    """

    def __init__(self, parts: Sequence[PlanPart], stages: Sequence[Stage]) -> None:
        self._parts = parts
        self._stages = stages
        firsts = tuple(part.first for part in parts)
        delivered = tuple(part.shares.before(part.first) for part in parts)
        shares = start_of_shares(stages[0].weights, delivered)
        start = PlanPoint(0, 0, firsts, delivered, 0, shares)
        # In the order of their positions.
        self._points = [start]
        self._windows: list[PlanWindow] = []
        self._lock = threading.Lock()

    def take(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the dataset at each position, and the index in it; shape (n,) each.

        Raises:
            IndexError: The plan ends before a position.
        """
        parts = np.empty(len(positions), np.int64)
        indices = np.empty(len(positions), np.int64)
        order = np.argsort(positions, kind="stable")
        ascending = positions[order]
        done = 0
        with self._lock:
            while done < len(ascending):
                window = self._window_at(int(ascending[done]))
                stop = int(np.searchsorted(ascending, window.end.position))
                offsets = ascending[done:stop] - window.start.position
                parts[order[done:stop]] = window.parts[offsets]
                indices[order[done:stop]] = window.indices[offsets]
                done = stop
        return parts, indices

    def indices_before(self, position: int) -> tuple[int, ...]:
        """Return the index of each dataset's first element at `position` or later.

        Raises:
            IndexError: The plan ends before the position.
        """
        if not position:
            return self._points[0].indices
        with self._lock:
            window = self._window_at(position - 1)
        taken = window.parts[: position - window.start.position]
        counts = np.bincount(taken, minlength=len(self._parts)).tolist()
        return tuple(a + b for a, b in zip(window.start.indices, counts, strict=True))

    def count_until(self, ends: Sequence[int | None]) -> float:
        """Return the number of positions before a dataset is due that has ended.

        Args:
            ends: The index after the last element of each dataset; None: no end.

        Returns:
            The number, or math.inf.
        """
        counts = [
            None if end is None else part.shares.before(end)
            for part, end in zip(self._parts, ends, strict=True)
        ]
        if not any(end is not None for end in ends):
            return math.inf
        with self._lock:
            point = self._points[0]
            while True:
                time, number = min(
                    (float(point.shares.due(number, count)), number)
                    for number, count in enumerate(counts)
                    if count is not None
                )
                last = point.stage + 1 == len(self._stages)
                if time < math.inf:
                    found = self._count_before(point, time, number)
                    # Its last elements may be empty, and due at the same time.
                    part, index = self._parts[number], found.indices[number]
                    end = ends[number] or 0
                    progress = found.progress + part.progress.before(end)
                    progress -= part.progress.before(index)
                    if last or progress < self._stages[point.stage + 1].start:
                        return found.position + end - index
                elif last:
                    return math.inf
                point = self._next_stage(point)

    def count_all(self) -> float:
        """Return the number of positions until no dataset with a weight has elements.

        Returns:
            The number, or math.inf.
        """
        with self._lock:
            point = self._points[0]
            while True:
                ends = [part.end for part in self._parts]
                active = [
                    number
                    for number, weight in enumerate(point.shares.weights)
                    if weight and ends[number] != point.indices[number]
                ]
                last = point.stage + 1 == len(self._stages)
                if any(ends[number] is None for number in active):
                    if last:
                        return math.inf
                else:
                    position, progress = point.position, point.progress
                    for number in active:
                        part, index = self._parts[number], point.indices[number]
                        end = part.end or 0
                        position += end - index
                        progress += part.progress.before(end)
                        progress -= part.progress.before(index)
                    if last or progress < self._stages[point.stage + 1].start:
                        return position
                point = self._next_stage(point)

    def _next_stage(self, point: PlanPoint) -> PlanPoint:
        """Return the first point of the stage after that of `point`."""
        stage = point.stage
        while point.stage == stage:
            point = self._window_after(self._skip_ahead(point, None)).end
        return point

    def _window_at(self, position: int) -> PlanWindow:
        """Return a window that contains a position."""
        for window in self._windows:
            if window.contains(position):
                return window
        start = bisect_right(self._points, position, key=lambda each: each.position) - 1
        candidates = [self._points[start]]
        candidates += [each.end for each in self._windows]
        point = max(
            (each for each in candidates if each.position <= position),
            key=lambda each: each.position,
        )
        while True:
            point = self._skip_ahead(point, position)
            window = self._window_after(point)
            if window.end.position == point.position:
                raise IndexError(
                    f"Index {position} is out of range: the mixture ends after"
                    f" {point.position} elements."
                )
            if window.contains(position):
                self._windows = [*self._windows[1 - MAX_WINDOWS :], window]
                return window
            point = window.end

    def _keep_point(self, point: PlanPoint) -> None:
        """Keep a point from which later searches may start."""
        place = bisect_right(
            self._points, point.position, key=lambda each: each.position
        )
        if self._points[place - 1].position != point.position:
            self._points.insert(place, point)
        if len(self._points) > MAX_POINTS:
            del self._points[1::2]

    def _skip_ahead(self, point: PlanPoint, position: int | None) -> PlanPoint:
        """Return a point closer to a position, in the same stage.

        Args:
            point: A point before the position.
            position: The position; None: the start of the next stage.
        """
        limit = math.inf
        if point.stage + 1 < len(self._stages):
            limit = self._stages[point.stage + 1].start
        late_time = math.inf  # Here, the position or the limit is already passed.
        while True:
            rates = self._rates(point)
            if rates is None:
                return point
            elements, progress = rates
            time = min(point.due(n) for n in self._active(point))
            span = (limit - point.progress) / progress if progress else math.inf
            if position is not None:
                span = min(span, (position - point.position) / elements)
            if span * elements < MAX_WALK or (late_time - time) * elements < MAX_WALK:
                return point
            guess = time + span - MAX_WALK / 2 / elements
            if guess >= late_time:
                guess = (time + late_time) / 2
            if not time < guess < late_time:
                return point
            found = self._count_before(point, guess)
            is_late = position is not None and found.position > position
            if is_late or found.progress >= limit:
                late_time = guess
            else:
                point = found
                self._keep_point(point)

    def _active(self, point: PlanPoint) -> list[int]:
        """Return the datasets that have a weight and have not ended."""
        return [
            number
            for number, (part, index) in enumerate(
                zip(self._parts, point.indices, strict=True)
            )
            if point.shares.weights[number] and index != part.end
        ]

    def _rates(self, point: PlanPoint) -> tuple[float, float] | None:
        """Return the elements, and the progress, of a unit of time; None at the end."""
        elements = progress = 0.0
        for number in self._active(point):
            part = self._parts[number]
            rate = point.shares.weights[number] / part.shares.mean
            elements += rate
            progress += rate * part.progress.mean
        return (elements, progress) if elements else None

    def _count_before(
        self, point: PlanPoint, time: float, before: int = 0
    ) -> PlanPoint:
        """Return the point at which all elements due before a time are delivered.

        Args:
            point: An earlier point of the stage.
            time: The time.
            before: Elements of datasets before this one are delivered also if they are
                due at `time`.
        """
        indices, delivered = list(point.indices), list(point.delivered)
        progress = point.progress
        for number in self._active(point):
            part, start = self._parts[number], point.indices[number]

            def due(count: int | Int64Array, number: int = number) -> float:
                found: float = point.shares.due(number, count)
                return found

            after_ties = number < before
            index = part.end
            if index is not None:
                last = due(part.shares.before(index))
                if last > time if after_ties else last >= time:
                    index = None
            if index is None:
                index = part.shares.find(due, time, after_ties, start)
                if part.end is not None:
                    index = min(index, part.end)
            indices[number] = index
            delivered[number] = part.shares.before(index)
            progress += part.progress.before(index) - part.progress.before(start)
        return dataclasses.replace(
            point,
            position=point.position + sum(indices) - sum(point.indices),
            indices=tuple(indices),
            delivered=tuple(delivered),
            progress=progress,
        )

    def _window_after(self, point: PlanPoint) -> PlanWindow:
        """Return the window that starts at a point; empty at the end of the plan."""
        active = self._active(point)
        if not active:
            empty = np.empty(0, np.int64)
            return PlanWindow(point, empty, empty, point)
        pieces = self._pieces_after(point, active)
        order = np.argsort(
            np.concatenate([piece.times for piece in pieces]), kind="stable"
        )
        numbers = np.repeat(active, [len(piece.times) for piece in pieces])[order]
        indices = np.concatenate([piece.indices for piece in pieces])[order]
        progress = np.concatenate([piece.progress for piece in pieces])[order]
        after = point.progress + np.cumsum(progress)
        count = len(order)
        next_start = self._next_start(point)
        if next_start is not None:
            count = min(int(np.searchsorted(after, next_start)) + 1, count)
        taken = np.bincount(numbers[:count], minlength=len(self._parts)).tolist()
        delivered = list(point.delivered)
        for number, piece in zip(active, pieces, strict=True):
            delivered[number] = int(piece.sums[taken[number]])
        end = dataclasses.replace(
            point,
            position=point.position + count,
            indices=tuple(a + b for a, b in zip(point.indices, taken, strict=True)),
            delivered=tuple(delivered),
            progress=int(after[count - 1]),
        )
        if next_start is not None and end.progress >= next_start:
            last = order[count - 1]
            time = float(np.concatenate([piece.times for piece in pieces])[last])
            end = self._at_next_stage(end, (time, int(numbers[count - 1])))
        return PlanWindow(point, numbers[:count], indices[:count], end)

    def _pieces_after(self, point: PlanPoint, active: list[int]) -> list[_Piece]:
        """Return the next elements of each active dataset, about a window in all.

        All elements that are due before the last of them are among them.
        """
        shares = point.shares
        rates = [shares.weights[n] / self._parts[n].shares.mean for n in active]
        count = WINDOW
        while True:
            horizon = math.inf
            pieces = []
            for number, rate in zip(active, rates, strict=True):
                part, first = self._parts[number], point.indices[number]
                size = int(1.1 * count * rate / sum(rates)) + 16
                if part.end is not None:
                    size = min(size, part.end - first)
                each = part.shares.of_each(first, size)
                sums = np.empty(size + 1, np.int64)
                sums[0] = point.delivered[number]
                np.cumsum(each, out=sums[1:])
                sums[1:] += sums[0]
                times = shares.due(number, sums)
                if first + size != part.end:
                    horizon = min(horizon, float(times[-1]))
                indices = np.arange(first, first + size)
                same = part.progress is part.shares
                progress = each if same else part.progress.of_each(first, size)
                pieces.append(_Piece(times[:-1], sums, indices, progress))
            pieces = [piece.before(horizon) for piece in pieces]
            if any(len(piece.times) for piece in pieces):
                return pieces
            count *= 2

    def _next_start(self, point: PlanPoint) -> float | None:
        """Return the start of the stage after a point's; None in the last stage."""
        following = self._stages[point.stage + 1 :]
        return following[0].start if following else None

    def _at_next_stage(self, point: PlanPoint, last: tuple[float, int]) -> PlanPoint:
        """Return a point with the weights of its progress.

        Args:
            point: The point.
            last: When the last element was due, and the number of its dataset.  A
                dataset without elements counts as ended only if it was due before.
        """
        stage = stage_at(self._stages, point.progress)
        ended = [
            index == part.end and (point.due(number), number) < last
            for number, (part, index) in enumerate(
                zip(self._parts, point.indices, strict=True)
            )
        ]
        shares, weights = point.shares, self._stages[stage].weights
        if weights != shares.weights:
            shares = shares.with_weights(weights, point.delivered, ended)
        changed = dataclasses.replace(point, stage=stage, shares=shares)
        self._keep_point(changed)
        return changed


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Consecutive elements of a dataset.

    Attributes:
        times: When each is due.
        sums: What was delivered before each, and after the last.
        indices: Their indices in the dataset.
        progress: What each adds to the progress of the stages.
    """

    times: npt.NDArray[np.float64]
    sums: Int64Array
    indices: Int64Array
    progress: Int64Array

    def before(self, time: float) -> _Piece:
        """Return the elements that are due before a time."""
        count = int(np.searchsorted(self.times, time))
        return _Piece(
            self.times[:count],
            self.sums[: count + 1],
            self.indices[:count],
            self.progress[:count],
        )
