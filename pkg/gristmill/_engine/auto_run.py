"""Measures the workers of an iterator, and changes their number as a plan decides."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Protocol

from gristmill._base import host_limits, log, process_usage
from gristmill._base.publication import publish
from gristmill._engine.auto_workers import (
    MAX_WAITED,
    MAX_WORKERS,
    Decision,
    Measurement,
    WorkerPlan,
    limit_by_cores,
)
from gristmill._engine.record_errors import ErrorCounter
from gristmill._engine.remote import RemoteOptions, RemoteRun
from gristmill._engine.state import RunPosition
from gristmill._engine.stream import Runnable
from gristmill._engine.worker_stats import LocalStats, RemoteStats

# A measurement takes the first time, and if outputs are rare, up to the second one.
MEASURE_NS, MAX_MEASURE_NS = 1_000_000_000, 4_000_000_000
# The time between two checks whether it may begin or end.
POLL_NS = 20_000_000
# The outputs of each worker that a measurement needs, and those before the first one.
ROUNDS = 3
# The most workers for each core, and the least value of this limit.
WORKERS_PER_CORE, MIN_LIMIT = 16, 32
# The share of the available memory that new workers may take, and the number of workers
# whose memory is read.
MEMORY_SHARE, MEMORY_SAMPLES = 0.8, 4


class ResizableRun(Protocol):
    """The workers of an iterator, whose number may change."""

    @property
    def is_changing(self) -> bool: ...
    def resize(self, count: int) -> None: ...
    def usage(self) -> RemoteStats | LocalStats | None: ...


@dataclasses.dataclass
class ChosenWorkers:
    """The last decision for a loader; its next iterator starts with that number."""

    count: int = 1


def start_choice(
    name: str, count: object, workers: object = None
) -> ChosenWorkers | None:
    """Return a first decision if the number of workers is "auto", else None.

    Args:
        name: The name of the argument with the number.
        count: The number, or "auto".
        workers: The backend of the workers, which must be None for "auto".

    Raises:
        ValueError: A backend runs the workers.
    """
    if count != "auto":
        return None
    if workers is not None:
        raise ValueError(
            f'{name}="auto" needs worker processes of this machine, got'
            f" workers={workers!r}. Pass a number of streams instead, and change the"
            " number of actors with set_workers()."
        )
    return ChosenWorkers()


class _Times:
    """The times of workers since they started, in s.

    Attributes:
        busy_s: The time with a unit, of all workers.
        runnable_s: The time of each process, by id, that it computed or waited to.
    """

    def __init__(self, usage: LocalStats) -> None:
        self.busy_s = sum(worker.busy_s for worker in usage.workers)
        self.runnable_s = {
            worker.pid: process_usage.read_runnable_s(worker.pid)
            for worker in usage.workers
        }


class AutoWorkers:
    """Changes the number of an iterator's workers by what its consumer waits for.

    The consumer's thread calls `count_output`.  Any thread may call `stop`.

    Args:
        chosen: Has the number at the start, and gets each later one.
        limit: The most workers that can compute at once, and why.

    Attributes:
        history: The numbers of workers until now, the first one first.
        reason: The reason for the last number.
    """

    def __init__(self, chosen: ChosenWorkers, limit: Decision) -> None:
        self.history = [chosen.count]
        self.reason = "nothing has been measured yet"
        self._chosen, self._limit = chosen, limit
        self._plan = WorkerPlan()
        self._stopped = False
        # When to look next, and when the measurement, or the time before it, began.
        self._due_ns = self._start_ns = 0
        self._waited_ns = self._outputs = 0
        # The times when the measurement began; None before it.
        self._times: _Times | None = None

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.history))
        return f'workers ("auto"): {numbers}; {self.reason}'

    def count_output(self, run: ResizableRun, asked_ns: int, taken_ns: int) -> None:
        """Count an output of `run`, which the consumer asked for and took then."""
        self._outputs += 1
        self._waited_ns += taken_ns - asked_ns
        if taken_ns >= self._due_ns and not self._stopped:
            self._due_ns = taken_ns + POLL_NS
            self._look(run, taken_ns)

    def stop(self, reason: str) -> None:
        """Leave the number as it is from now on."""
        self._stopped, self.reason = True, reason

    def _look(self, run: ResizableRun, now_ns: int) -> None:
        """Begin or end a measurement if it is time, and decide after it."""
        if run.is_changing or not self._start_ns:
            self._begin(now_ns, None)
            return
        elapsed_ns = now_ns - self._start_ns
        has_rounds = self._outputs >= ROUNDS * self.history[-1]
        if self._times is None:
            # The first outputs were ready before, or include the start of workers.
            is_due = has_rounds or elapsed_ns >= MEASURE_NS
        else:
            is_due = elapsed_ns >= (MEASURE_NS if has_rounds else MAX_MEASURE_NS)
        usage = run.usage() if is_due else None
        if not isinstance(usage, LocalStats) or not usage.workers:
            return
        times, start = _Times(usage), self._times
        # Without a common process, the iterator was closed, and then went on.
        if start is not None and start.runnable_s.keys() & times.runnable_s.keys():
            found = self._measurement(usage, times, start, elapsed_ns / 1e9)
            if self._decide(run, found, self._limits(usage, found)):
                self._begin(now_ns, None)
                return
        self._begin(now_ns, times)

    def _begin(self, now_ns: int, times: _Times | None) -> None:
        self._start_ns, self._times = now_ns, times
        self._waited_ns = self._outputs = 0

    def _measurement(
        self, usage: LocalStats, now: _Times, start: _Times, seconds: float
    ) -> Measurement:
        return Measurement(
            workers=len(usage.workers),
            outputs=self._outputs,
            seconds=seconds,
            waited_s=min(self._waited_ns / 1e9, seconds),
            busy_s=max(0.0, now.busy_s - start.busy_s),
            # Processes that ended or started meanwhile do not count.
            runnable_s=sum(
                max(0.0, runnable_s - start.runnable_s[pid])
                for pid, runnable_s in now.runnable_s.items()
                if pid in start.runnable_s
            ),
        )

    def _decide(
        self, run: ResizableRun, found: Measurement, limits: list[Decision]
    ) -> bool:
        """Apply the plan's decision; return whether the number of workers changes."""
        count, self.reason = self._plan.decide(found, limits)
        if count != found.workers:
            try:
                run.resize(count)
            except Exception as error:
                self.stop(f"{count} workers could not start")
                log.warning("%s: %s. The present workers go on.", self, error)
                return False
            self.history.append(count)
            self._chosen.count = count
        publish("auto_workers", self, {"workers": count, "text": str(self)})
        return count != found.workers

    def _limits(self, usage: LocalStats, found: Measurement) -> list[Decision]:
        """Return how many workers the host allows, if the consumer waits."""
        if found.waited <= MAX_WAITED:
            return []
        cores = host_limits.count_cores()
        by_count = min(MAX_WORKERS, max(MIN_LIMIT, int(WORKERS_PER_CORE * cores)))
        memory_bytes = [
            process.pss_bytes
            for worker in usage.workers[:MEMORY_SAMPLES]
            if (process := process_usage.read_usage(worker.pid)) is not None
        ]
        # The present workers keep theirs until the new ones have started.
        available = MEMORY_SHARE * host_limits.available_memory()
        by_memory = int(available / max([1, *memory_bytes]))
        return [
            self._limit,
            Decision(by_count, f"{by_count} are the most on {cores:g} cores"),
            limit_by_cores(found, cores),
            # They have started, so memory limits the number of others only.
            Decision(
                max(found.workers, by_memory), f"memory is left for {by_memory} workers"
            ),
        ]


class AutoRun(RemoteRun):
    """A `RemoteRun` that changes the number of its workers."""

    def __init__(
        self,
        program: Runnable,
        position: RunPosition,
        options: RemoteOptions,
        chosen: ChosenWorkers,
        counter: ErrorCounter | None,
    ) -> None:
        options = dataclasses.replace(options, workers=chosen.count)
        super().__init__(program, position, options, counter)
        limit = Decision(MAX_WORKERS, "")
        if program.owned:
            streams = position.streams
            limit = Decision(streams, f"each of {streams} streams has one worker")
        self._auto = AutoWorkers(chosen, limit)

    @property
    def is_changing(self) -> bool:
        """True while other workers start that will replace the present ones."""
        return self._successor is not None

    def next(self) -> Any:
        asked_ns = time.perf_counter_ns()
        output = super().next()
        self._auto.count_output(self, asked_ns, time.perf_counter_ns())
        return output

    def resize(self, count: int) -> None:
        super().set_workers(count)

    def set_workers(self, count: int) -> None:
        self._auto.stop(f"set_workers({count}) was called")
        super().set_workers(count)
