"""Runs a pipeline for a short time, and takes the waits for its outputs."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gristmill._base.sizes import size_of

# After a call that took less, with the use of its output, `UNTIMED` calls follow that
# are not timed.
SHORT_S = 20e-6
UNTIMED = 63


class RunTimes(NamedTuple):
    """The times of a run by the wall clock, without the first output of each iterator.

    Attributes:
        waits_s: The durations of the calls of ``next`` that were timed, in s.
        consumer_s: The time of the consumer between these calls, in s.
        bytes_each: The approximate size of an output, in bytes.
        outputs: The number of outputs, also of calls that were not timed.
        seconds: The time for all outputs, in s.
    """

    waits_s: list[float]
    consumer_s: float
    bytes_each: int
    outputs: int
    seconds: float

    @property
    def rate(self) -> float:
        """Outputs per second."""
        return self.outputs / self.seconds if self.seconds else 0.0

    @property
    def waited(self) -> float:
        """The part of the time in which the consumer waited, from 0 to 1."""
        waited_s = sum(self.waits_s)
        return waited_s / (waited_s + self.consumer_s) if waited_s else 0.0


def check_seconds(seconds: float) -> None:
    """Raise ValueError unless `seconds` is positive and finite."""
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds must be positive and finite, got {seconds}.")


def run_for(
    iterator: Iterator[Any],
    seconds: float,
    consume: Callable[[Any], Any] | None,
    close: Callable[[Any], None],
) -> RunTimes:
    """Take outputs for about `seconds`; the first one, which starts workers, is extra.

    After a short call, some calls are not timed one by one, because reads of the clock
    would slow the loop down.
    """
    waits: list[float] = []
    consumer_s = elapsed_s = 0.0
    outputs = size = 0
    end = object()
    clock = time.perf_counter
    consume_all = consume or (lambda output: None)
    try:
        output = next(iterator, end)
        if output is not end:
            consume_all(output)
        start = clock()
        while output is not end and elapsed_s < seconds:
            began = clock()
            output = next(iterator, end)
            received = clock()
            if output is end:
                break
            waits.append(received - began)
            if consume is not None:
                consume(output)
                consumer_s += clock() - received
            outputs += 1
            if len(waits) & (len(waits) - 1) == 0:
                size = size_of(output)
            if clock() - began < SHORT_S:
                for output in itertools.islice(iterator, UNTIMED):
                    consume_all(output)
                    outputs += 1
            elapsed_s = clock() - start
    finally:
        close(iterator)
    return RunTimes(waits, consumer_s, size, outputs, elapsed_s)
