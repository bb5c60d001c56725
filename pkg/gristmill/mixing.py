"""Schedules for the weights of mixtures.

`MapDataset.mix` and `IterDataset.mix` take a `MixSchedule` as weights.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

from gristmill._base.argument_checks import (
    check_finite,
    check_flag,
    check_integer,
    kind,
)
from gristmill._base.lazy_names import public_names

__all__ = ["MixSchedule"]

MixUnit: TypeAlias = Literal["elements", "tokens"]
ScheduleUnit: TypeAlias = Literal["batches", "elements", "tokens"]
AtEnd: TypeAlias = Literal["stop", "drop"]
Weights: TypeAlias = Sequence[float] | Mapping[str, float]
# Weights change in this many steps from one point of a ramp to the next.
RAMP_STEPS = 100


class Stage(NamedTuple):
    """Weights that are constant for a while.

    Attributes:
        start: The number of tokens or elements of the mixture before the stage.
        weights: The share of each dataset; their sum is 1.
    """

    start: float
    weights: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class MixSchedule:
    """Weights of a mixture that change at given points.

    Args:
        points: Pairs ``(start, weights)``.  Weights are a sequence, or a mapping of
            names, as for `mix`; they are at least 0, and one is positive.  The first
            start is 0, and starts increase.  The last weights stay.
        unit: What starts count in the whole mixture: "tokens", "elements" or "batches".
        batch_size: The number of elements of a batch, if `unit` is "batches".
        ramp: Whether weights change linearly from each point to the next, in 100 steps.
            Otherwise they change at the points.

    Raises:
        ValueError: Starts do not increase from 0, a weight is negative or not finite,
            all weights of a point are 0, or `unit` is unknown.
        TypeError: An argument has the wrong type.

    Example:
        >>> schedule = MixSchedule([(0, [1, 0]), (3, [1, 2])], unit="elements")
        >>> parts = [gristmill.MapDataset.range(n, n + 9) for n in (0, 10)]
        >>> list(gristmill.MapDataset.mix(parts, schedule))[:9]
        [0, 1, 2, 3, 10, 11, 4, 12, 13]
    """

    points: Sequence[tuple[int, Weights]]
    _: dataclasses.KW_ONLY
    unit: ScheduleUnit
    batch_size: int | None = None
    ramp: bool = False

    def __post_init__(self) -> None:
        if self.unit not in get_args(ScheduleUnit):
            raise ValueError(
                f"unit must be one of {get_args(ScheduleUnit)}, got {self.unit!r}."
            )
        check_flag("ramp", self.ramp)
        self._check_batch_size()
        points = [_checked_point(i, each) for i, each in enumerate(_items(self.points))]
        if not points:
            raise ValueError("points must have at least one pair (start, weights).")
        if points[0][0] != 0:
            raise ValueError(
                f"The first start of a schedule must be 0, got {points[0][0]}."
            )
        names = _names(points[0][1])
        for number in range(1, len(points)):
            before, (start, weights) = points[number - 1][0], points[number]
            if start <= before:
                raise ValueError(
                    f"Starts of a schedule must increase, but points[{number}] starts"
                    f" at {start}, after {before}. Sort the points."
                )
            if _names(weights) != names:
                raise ValueError(
                    f"points[{number}] has weights for {_names(weights)}, but points[0]"
                    f" has weights for {names}. Pass weights for the same datasets."
                )
        object.__setattr__(self, "points", tuple(points))

    def _check_batch_size(self) -> None:
        if self.unit != "batches":
            if self.batch_size is not None:
                raise ValueError(
                    f"batch_size needs unit='batches', got unit={self.unit!r}."
                )
            return
        if self.batch_size is None:
            raise ValueError(
                "unit='batches' needs batch_size, the elements of a batch."
            )
        check_integer("batch_size", self.batch_size)
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}.")


def scheduled_stages(
    schedule: MixSchedule, names: Sequence[str] | None, count: int
) -> list[Stage]:
    """Return the stages, in their order, for the datasets of a mixture.

    Args:
        schedule: The schedule.
        names: The names of the datasets in their order, or None.
        count: The number of datasets.

    Raises:
        ValueError: A point has weights for other datasets, or a dataset never has a
            positive weight.
        TypeError: Weights have names but the datasets do not, or the reverse.
    """
    size = 1 if schedule.batch_size is None else schedule.batch_size
    points = [
        Stage(start * size, _shares(f"points[{number}]", weights, names, count))
        for number, (start, weights) in enumerate(schedule.points)
    ]
    for number in range(count):
        if not any(point.weights[number] for point in points):
            name = number if names is None else repr(names[number])
            raise ValueError(
                f"Dataset {name} has weight 0 at each point of the schedule. Leave"
                " it out of the mixture."
            )
    stages: list[Stage] = []
    for point, following in zip(points, [*points[1:], None], strict=True):
        if not schedule.ramp or following is None:
            stages.append(point)
        else:
            stages += _ramp_stages(point, following)
    # A stage with the weights of the one before it changes nothing.
    return [
        stage
        for number, stage in enumerate(stages)
        if number == 0 or stage.weights != stages[number - 1].weights
    ]


def constant_stages(
    weights: Weights | None, names: Sequence[str] | None, count: int
) -> list[Stage]:
    """Return the only stage of constant weights, all of them positive.

    Raises:
        ValueError: A weight is not positive and finite, or their number is wrong.
        TypeError: A weight is not a number, or only weights or datasets have names.
    """
    if weights is None:
        return [Stage(0, (1 / count,) * count)]
    shares = _shares("weights", weights, names, count)
    if 0 in shares:
        raise ValueError(
            f"Weights must be positive, got {weights}. For weights that are 0 at first,"
            " pass a MixSchedule."
        )
    return [Stage(0, shares)]


def _ramp_stages(first: Stage, last: Stage) -> list[Stage]:
    """Return the steps of a ramp; each has the weights of its middle."""
    span = last.start - first.start
    steps = int(min(RAMP_STEPS, span))
    stages = []
    for step in range(steps):
        part = (step + 0.5) / steps
        pairs = zip(first.weights, last.weights, strict=True)
        weights = tuple(a + (b - a) * part for a, b in pairs)
        stages.append(Stage(first.start + span * step / steps, weights))
    return stages


def _items(points: object) -> Sequence[object]:
    if isinstance(points, (str, bytes)) or not isinstance(points, Sequence):
        raise TypeError(
            f"points must be a list of pairs (start, weights), got {kind(points)}."
        )
    return points


def _checked_point(number: int, point: object) -> tuple[int, Weights]:
    """Return a point whose start and weights are valid numbers."""
    if not isinstance(point, (tuple, list)) or len(point) != 2:
        raise TypeError(
            f"points[{number}] must be a pair (start, weights), got {kind(point)}."
        )
    start, weights = point
    check_integer(f"The start of points[{number}]", start)
    checked = _checked_weights(f"points[{number}]", weights)
    return operator.index(start), checked


def _checked_weights(name: str, weights: object) -> Weights:
    """Return weights as a tuple or a dict."""
    is_mapping = isinstance(weights, Mapping)
    is_list = isinstance(weights, Sequence) or hasattr(weights, "__array__")
    if isinstance(weights, (str, bytes)) or not (is_mapping or is_list):
        raise TypeError(
            f"{name} must have a list of weights, or a mapping of names, got"
            f" {kind(weights)}."
        )
    values = list(weights.values() if isinstance(weights, Mapping) else weights)  # type: ignore[call-overload]
    for value in values:
        check_finite(f"A weight of {name}", value)
        if value < 0:
            raise ValueError(f"Weights of {name} must be at least 0, got {value}.")
    if not values or not any(values):
        raise ValueError(f"At least one weight of {name} must be positive.")
    if isinstance(weights, Mapping):
        return dict(weights)
    return tuple(values)


def _names(weights: Weights) -> set[str] | str:
    if isinstance(weights, Mapping):
        return set(weights)
    return f"{len(weights)} datasets"


def _shares(
    name: str, weights: Weights, names: Sequence[str] | None, count: int
) -> tuple[float, ...]:
    """Return weights in the order of the datasets, divided by their sum."""
    checked = _checked_weights(name, weights)
    if isinstance(checked, Mapping) != (names is not None):
        raise TypeError(
            f"The datasets and {name} must both have names, or neither. Pass mappings"
            " of the same names, or lists."
        )
    if isinstance(checked, Mapping):
        if set(checked) != set(names or ()):
            raise ValueError(
                f"{name} must have the names of the datasets, {sorted(names or ())},"
                f" got {sorted(map(str, checked))}."
            )
        checked = [checked[each] for each in names or ()]
    if len(checked) != count:
        raise ValueError(
            f"{name} must have {count} weights, one for each dataset, got"
            f" {len(checked)}."
        )
    values = [float(value) for value in checked]
    largest = max(values)  # Divide first: the sum may exceed the range of floats.
    scaled = [value / largest for value in values]
    return tuple(value / sum(scaled) for value in scaled)


def __dir__() -> list[str]:
    return public_names(__all__)
