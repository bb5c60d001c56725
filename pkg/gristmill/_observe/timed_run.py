"""Runs a pipeline for a short time, and measures the waits for its outputs."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gristmill._base.sizes import size_of
from gristmill._engine.recording import CONSUME, NEXT, Recorder, current_recorder

# If a call and the use of its output took less than this, the next `UNTIMED_CALLS`
# calls are not timed one by one.
SHORT_CALL_S = 20e-6
UNTIMED_CALLS = 63


class RunTimes(NamedTuple):
    """The times of a run by the wall clock, without the first output of each iterator.

    Attributes:
        waits_s: The durations of the calls of ``next`` that were timed, in s.
        consumer_s: The time of the consumer between these calls, in s.
        bytes_per_output: The approximate size of an output, in bytes.
        outputs: The number of outputs, also of calls that were not timed.
        seconds: The time for all outputs, in s.
    """

    waits_s: list[float]
    consumer_s: float
    bytes_per_output: int
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
    """Take outputs for about `seconds`, and return the times.

    The times exclude the first output, which starts workers.  After a short call, some
    calls are not timed one by one, because reads of the clock would slow the loop down.

    Args:
        iterator: Returns the outputs.
        seconds: The duration, in s.
        consume: Called with each output.  Its time counts as the consumer's.
        close: Called with the iterator at the end, also after an error.
    """
    opened = iterator
    if (recorder := current_recorder()) is not None:
        iterator = _record_calls(iterator, recorder)
        consume = consume and functools.partial(_record_use, recorder, consume)
    waits_s: list[float] = []
    consumer_s = elapsed_s = 0.0
    outputs = output_bytes = 0
    end = object()
    clock = time.perf_counter
    use = consume or (lambda output: None)
    try:
        output = next(iterator, end)
        if output is not end:
            use(output)
        loop_start_s = clock()
        while output is not end and elapsed_s < seconds:
            start_s = clock()
            output = next(iterator, end)
            received_s = clock()
            if output is end:
                break
            waits_s.append(received_s - start_s)
            if consume is not None:
                consume(output)
                consumer_s += clock() - received_s
            outputs += 1
            # The 1st, 2nd, 4th, 8th ... timed output.
            if len(waits_s) & (len(waits_s) - 1) == 0:
                output_bytes = size_of(output)
            if clock() - start_s < SHORT_CALL_S:
                for output in itertools.islice(iterator, UNTIMED_CALLS):
                    use(output)
                    outputs += 1
            elapsed_s = clock() - loop_start_s
    finally:
        close(opened)
    return RunTimes(waits_s, consumer_s, output_bytes, outputs, elapsed_s)


def _record_calls(iterator: Iterator[Any], recorder: Recorder) -> Iterator[Any]:
    """Yield the outputs of an iterator, and record its calls."""
    end = object()
    while True:
        start_ns = time.perf_counter_ns()
        output = next(iterator, end)
        recorder.add([(NEXT, start_ns, time.perf_counter_ns())])
        if output is end:
            return
        yield output


def _record_use(recorder: Recorder, consume: Callable[[Any], Any], output: Any) -> None:
    """Consume an output, and record the call."""
    start_ns = time.perf_counter_ns()
    consume(output)
    recorder.add([(CONSUME, start_ns, time.perf_counter_ns())])
