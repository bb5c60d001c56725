"""The rule of mixtures that count tokens, or whose weights change.

Each dataset is due at a time: the tokens (or elements) that it has delivered, divided
by its weight.  The next element is taken from the dataset that is due first, which is
the one that lags most behind its share.  If two are due at the same time, it is the
first of them.  Weights are constant in a `Stage`.  At the start of the next stage, each
dataset keeps its lead over the one that is due first.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from gristmill.mixing import Stage

_start_of = operator.attrgetter("start")


@dataclasses.dataclass(frozen=True)
class Shares:
    """The weights of a stage, and what each dataset had delivered at its start.

    Attributes:
        weights: The share of each dataset.
        leads: How much each dataset was ahead of its share at the start.
        bases: How much each dataset had delivered at the start.
    """

    weights: tuple[float, ...]
    leads: tuple[float, ...]
    bases: tuple[int, ...]

    def due(self, number: int, delivered: Any) -> Any:
        """Return when a dataset is due, given an int or an array; inf for weight 0."""
        weight = self.weights[number]
        if not weight:
            return math.inf if isinstance(delivered, int) else delivered * 0 + math.inf
        return (self.leads[number] + (delivered - self.bases[number])) / weight

    def with_weights(
        self,
        weights: tuple[float, ...],
        delivered: Sequence[int],
        ended: Sequence[bool],
    ) -> Shares:
        """Return the shares of the next stage.

        Args:
            weights: Its weights.
            delivered: How much each dataset has delivered.
            ended: Whether each dataset has no more elements.
        """
        dues = [self.due(number, each) for number, each in enumerate(delivered)]
        first = min(
            (due for due, end in zip(dues, ended, strict=True) if not end),
            default=math.inf,
        )
        leads = []
        for number, due in enumerate(dues):
            if due < math.inf and first < math.inf:
                lead = (due - first) * self.weights[number]
            else:  # It has no share now, or no dataset has.
                lead = self.leads[number] + (delivered[number] - self.bases[number])
            leads.append(lead)
        return Shares(weights, tuple(leads), tuple(delivered))


def start_of_shares(weights: tuple[float, ...], delivered: Sequence[int]) -> Shares:
    """Return the shares of the first stage."""
    return Shares(weights, (0.0,) * len(weights), tuple(delivered))


def stage_at(stages: Sequence[Stage], progress: float) -> int:
    """Return the number of the stage after `progress` tokens or elements."""
    return max(bisect_right(stages, progress, key=_start_of) - 1, 0)


def next_start(stages: Sequence[Stage], number: int) -> float:
    """Return the start of the stage after stage `number`; inf if that is the last."""
    return stages[number + 1].start if number + 1 < len(stages) else math.inf
