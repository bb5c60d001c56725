"""Runs a pipeline for a short time, and takes how long its outputs are waited for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gristmill._base.sizes import size_of
from gristmill._observe.meter import Stopwatch


class Took(NamedTuple):
    """What calls of ``next`` took, the first of each iterator left out, in s."""

    waits_s: list[float]
    away_s: float
    bytes_each: int

    @property
    def rate(self) -> float:
        """Outputs a second."""
        whole = sum(self.waits_s) + self.away_s
        return len(self.waits_s) / whole if whole else 0.0


def check_seconds(seconds: float) -> None:
    """Refuse what is no length of time; not a number is none."""
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds must be positive, got {seconds}")


def run_for(
    iterator: Iterator[Any],
    seconds: float,
    consume: Callable[[Any], Any] | None,
    close: Callable[[Any], None],
) -> Took:
    """Take outputs for about so long; the first one, and what begins then, aside."""
    waits: list[float] = []
    away = 0.0
    size = 0
    end = object()
    try:
        output = next(iterator, end)
        until = time.perf_counter() + seconds
        while output is not end and time.perf_counter() < until:
            consumed = Stopwatch()
            if consume is not None:
                consume(output)
            consumed_ns = consumed.read_ns()
            waited = Stopwatch()
            output = next(iterator, end)
            if output is end:
                break
            waits.append(waited.read_ns() / 1e9)
            away += consumed_ns / 1e9
            if len(waits) & (len(waits) - 1) == 0:
                size = size_of(output)
    finally:
        close(iterator)
    return Took(waits, away, size)
