"""Computes small outputs of a stream several at a time."""

from __future__ import annotations

import time
from typing import Any

from gristmill._base.types import Alloc
from gristmill._engine.stream import NO_KEYS, Output, Position

# The most outputs in one call, and the duration of a call at which to aim.
MAX_OUTPUTS = 512
RUN_NS = 1_000_000


class BufferedStream:
    """Returns the outputs of a stream whose `computes_runs` is true.  See `Stream`.

    It computes as many outputs at a time as take about a millisecond, and keeps those
    that were not requested yet.  Used only in the consumer's process, by `LocalRun`.
    """

    def __init__(self, stream: Any) -> None:
        self.position: Position = stream.position
        self.keys = NO_KEYS
        self.record_errors = stream.record_errors
        self._stream = stream
        # The number of outputs to compute in the next call.
        self._run_outputs = 1
        # The outputs that are ready, the last one first.
        self._ready: list[Output] = []

    @property
    def ready(self) -> int:
        """The number of outputs that are ready."""
        return len(self._ready)

    def seek(self, position: Position) -> None:
        self._ready = []
        self._run_outputs = 1
        self._stream.seek(position)
        self.position = position

    def next(self, alloc: Alloc | None = None) -> Any:
        # Nothing is ready if the next output fails: `stream.next` raises its error.
        ready = self._ready
        if not ready:
            self._ready = ready = self._compute_run()
        if ready:
            output, self.keys, self.position = ready.pop()
            return output
        stream = self._stream
        try:
            output = stream.next(alloc)
        finally:
            self.position, self.keys = stream.position, stream.keys
        return output

    def start_prefetch(self) -> None:
        self._stream.start_prefetch()

    def close(self) -> None:
        self._ready = []
        self._stream.close()

    def _compute_run(self) -> list[Output]:
        """Return the next outputs, the last one first; none before one that fails."""
        start_ns = time.perf_counter_ns()
        outputs: list[Output] = self._stream.next_run(self._run_outputs)
        duration_ns = time.perf_counter_ns() - start_ns
        if duration_ns < RUN_NS / 2:
            self._run_outputs = min(2 * self._run_outputs, MAX_OUTPUTS)
        elif duration_ns > 2 * RUN_NS:
            self._run_outputs = max(len(outputs) * RUN_NS // duration_ns, 1)
        outputs.reverse()
        return outputs
