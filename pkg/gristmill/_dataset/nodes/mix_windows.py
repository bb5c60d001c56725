"""Windows of the order of a planned mixture, see `mix_plan`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Int64Array
from gristmill._dataset.nodes.mix_shares import Shares, next_start, stage_at
from gristmill._dataset.nodes.running_counts import RunningCount
from gristmill.mixing import Stage


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
    """The state of a mixture before a position.

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


class PlanWindows:
    """Computes windows of an order.  Any thread may call.

    Args:
        parts: The datasets.
        stages: The stages of weights.
    """

    def __init__(self, parts: Sequence[PlanPart], stages: Sequence[Stage]) -> None:
        self.parts = parts
        self.stages = stages

    def active(self, point: PlanPoint) -> list[int]:
        """Return the datasets that have a weight and have not ended."""
        return [
            number
            for number, (part, index) in enumerate(
                zip(self.parts, point.indices, strict=True)
            )
            if point.shares.weights[number] and index != part.end
        ]

    def rates(self, point: PlanPoint) -> tuple[float, float]:
        """Return the mean elements, and progress, of a unit of time; 0 at the end."""
        elements = progress = 0.0
        for number in self.active(point):
            part = self.parts[number]
            rate = point.shares.weights[number] / part.shares.mean
            elements += rate
            progress += rate * part.progress.mean
        return elements, progress

    def after(self, point: PlanPoint, size: int) -> PlanWindow:
        """Return the window that starts at a point; empty at the end of the plan.

        Args:
            point: The point.
            size: The number of its positions, about.
        """
        active = self.active(point)
        if not active:
            empty = np.empty(0, np.int64)
            return PlanWindow(point, empty, empty, point)
        limit = self.next_start(point)
        elements, progress_rate = self.rates(point)
        if (limit - point.progress) * elements < size * progress_rate:
            # The elements after the stage would be dropped.
            size = int((limit - point.progress) * elements / progress_rate) + 1
        pieces = self._pieces_after(point, active, size)
        order = np.argsort(
            np.concatenate([piece.times for piece in pieces]), kind="stable"
        )
        numbers = np.repeat(active, [len(piece.times) for piece in pieces])[order]
        indices = np.concatenate([piece.indices for piece in pieces])[order]
        progress = np.concatenate([piece.progress for piece in pieces])[order]
        after = point.progress + np.cumsum(progress)
        count = min(int(np.searchsorted(after, limit)) + 1, len(order))
        taken = np.bincount(numbers[:count], minlength=len(self.parts)).tolist()
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
        if end.progress >= limit:
            last = order[count - 1]
            time = float(np.concatenate([piece.times for piece in pieces])[last])
            end = self._at_next_stage(end, (time, int(numbers[count - 1])))
        return PlanWindow(point, numbers[:count], indices[:count], end)

    def _pieces_after(
        self, point: PlanPoint, active: list[int], count: int
    ) -> list[_Piece]:
        """Return the next elements of each active dataset, about `count` in all.

        All elements that are due before the last of them are among them.
        """
        shares = point.shares
        rates = [shares.weights[n] / self.parts[n].shares.mean for n in active]
        while True:
            horizon = math.inf
            pieces = []
            for number, rate in zip(active, rates, strict=True):
                part, first = self.parts[number], point.indices[number]
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

    def next_start(self, point: PlanPoint) -> float:
        """Return the start of the stage after a point's; inf in the last stage."""
        return next_start(self.stages, point.stage)

    def _at_next_stage(self, point: PlanPoint, last: tuple[float, int]) -> PlanPoint:
        """Return a point with the weights of its progress.

        Args:
            point: The point.
            last: When the last element was due, and the number of its dataset.  A
                dataset without elements counts as ended only if it was due before.
        """
        stage = stage_at(self.stages, point.progress)
        ended = [
            index == part.end and (point.due(number), number) < last
            for number, (part, index) in enumerate(
                zip(self.parts, point.indices, strict=True)
            )
        ]
        shares, weights = point.shares, self.stages[stage].weights
        if weights != shares.weights:
            shares = shares.with_weights(weights, point.delivered, ended)
        return dataclasses.replace(point, stage=stage, shares=shares)


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
