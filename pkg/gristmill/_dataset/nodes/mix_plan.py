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

from gristmill._base.types import Int64Array
from gristmill._dataset.nodes.mix_shares import start_of_shares
from gristmill._dataset.nodes.mix_windows import (
    PlanPart,
    PlanPoint,
    PlanWindow,
    PlanWindows,
)
from gristmill.mixing import Stage

# The number of positions whose order is computed at once, about: the smallest, and the
# largest after windows one after another.
WINDOW = 1 << 10
MAX_WINDOW = 1 << 14
# Up to this many positions, computing the order is faster than counting.
MAX_WALK = 1 << 16
MAX_WINDOWS = 4
MAX_POINTS = 1 << 12


class MixPlan:
    """Maps positions of a mixture to datasets and indices in them.

    Any thread may call.

    Args:
        parts: The datasets.
        stages: The stages of weights.
    """

    def __init__(self, parts: Sequence[PlanPart], stages: Sequence[Stage]) -> None:
        self._parts = parts
        self._order = PlanWindows(parts, stages)
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
        if np.any(positions[1:] < positions[:-1]):
            ascending, places = np.unique(positions, return_inverse=True)
            parts, indices = self.take(ascending)
            return parts[places], indices[places]
        parts = np.empty(len(positions), np.int64)
        indices = np.empty(len(positions), np.int64)
        done = 0
        with self._lock:
            while done < len(positions):
                window = self._window_at(int(positions[done]))
                stop = int(np.searchsorted(positions, window.end.position))
                offsets = positions[done:stop] - window.start.position
                parts[done:stop] = window.parts[offsets]
                indices[done:stop] = window.indices[offsets]
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
                limit = self._order.next_start(point)
                if time < math.inf:
                    found = self._count_before(point, time, number)
                    # Its last elements may be empty, and due at the same time.
                    part, index = self._parts[number], found.indices[number]
                    end = ends[number] or 0
                    progress = found.progress + part.progress.before(end)
                    progress -= part.progress.before(index)
                    if progress < limit:
                        return found.position + end - index
                elif limit == math.inf:
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
                limit = self._order.next_start(point)
                if any(ends[number] is None for number in active):
                    if limit == math.inf:
                        return math.inf
                else:
                    position, progress = point.position, point.progress
                    for number in active:
                        part, index = self._parts[number], point.indices[number]
                        end = part.end or 0
                        position += end - index
                        progress += part.progress.before(end)
                        progress -= part.progress.before(index)
                    if progress < limit:
                        return position
                point = self._next_stage(point)

    def _next_stage(self, point: PlanPoint) -> PlanPoint:
        """Return the first point of the stage after that of `point`."""
        stage = point.stage
        while point.stage == stage:
            point = self._order.after(self._skip_ahead(point, None), MAX_WINDOW).end
        self._keep_point(point)
        return point

    def _window_at(self, position: int) -> PlanWindow:
        """Return a window that contains a position."""
        for window in reversed(self._windows):
            if window.contains(position):
                return window
        start = bisect_right(self._points, position, key=lambda each: each.position) - 1
        candidates = [self._points[start]]
        candidates += [each.end for each in self._windows]
        point = max(
            (each for each in candidates if each.position <= position),
            key=lambda each: each.position,
        )
        # A window after the last one is larger, up to a limit.
        last = self._windows[-1:]
        follows = bool(last) and last[0].end is point
        least = max(2 * len(last[0].parts), WINDOW) if follows else WINDOW
        while True:
            point = self._skip_ahead(point, position)
            size = min(max(position - point.position, least), MAX_WINDOW)
            window = self._order.after(point, size)
            if window.contains(position):
                self._windows = [*self._windows[1 - MAX_WINDOWS :], window]
                return window
            if window.end.position == point.position:
                raise IndexError(
                    f"Index {position} is out of range: the mixture ends after"
                    f" {point.position} elements."
                )
            if window.end.stage != point.stage:
                self._keep_point(window.end)
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
        limit = self._order.next_start(point)
        late_time = math.inf  # Here, the position or the limit is already passed.
        while True:
            elements, progress = self._order.rates(point)
            if not elements:
                return point
            time = min(point.due(n) for n in self._order.active(point))
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
        for number in self._order.active(point):
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
