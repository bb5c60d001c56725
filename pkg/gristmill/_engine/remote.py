"""Runs the streams of a program in worker processes.

The core (`_core.Scheduler` and the supervisor below it) orders units, leases them and
starts and watches workers.  This module sends the program, decodes outputs, and raises
or logs errors.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import threading
from typing import Any, NamedTuple

from gristmill import _core
from gristmill._base import log
from gristmill._base.grain_names import worker_name
from gristmill._base.types import Int64Array
from gristmill._engine import failures, startup_progress
from gristmill._engine.record_errors import ErrorCounter, TurnSkipped
from gristmill._engine.stage_times import RECEIVE, StageTimes, mean_times
from gristmill._engine.state import RunPosition
from gristmill._engine.stream import NO_KEYS, Runnable
from gristmill._engine.worker_stats import LocalStats, RemoteStats
from gristmill._engine.worker_texts import (
    arena_full_error,
    closed_error,
    death_message,
    slow_unit_message,
    stall_message,
    worker_stall_message,
)
from gristmill._engine.workers import LauncherWorkers, WorkerBackend, Workers
from gristmill._hot.error_location import as_failure
from gristmill._workers import nesting
from gristmill.errors import WorkerDied

# A unit that takes longer is reported if it is much slower than those before it.
SLOW_S = 5.0


@dataclasses.dataclass(frozen=True)
class RemoteOptions:
    """Options of workers.

    Attributes:
        workers: The number of workers, unless there is a backend.
        buffer: Units ahead per worker, unless there is a backend; `workers` times
            `buffer + 2` are published at a time.
        max_restarts: Retries of a unit whose worker died.
        memory_limit: Bytes of shared memory; 0 for 80 % of the available memory.
        stall_timeout: Seconds without an output before a warning; negative: never.
        stall_action: "warn" or "restart".
        backend: Runs the workers, and defines their number and buffer; None for worker
            processes of this machine.
    """

    workers: int
    buffer: int
    max_restarts: int
    memory_limit: int
    stall_timeout: float
    stall_action: str
    backend: WorkerBackend | None = None


class _ScheduledWorkers(NamedTuple):
    """A scheduler, and the workers that compute its units."""

    scheduler: _core.Scheduler
    workers: Workers

    def go_to(self, position: RunPosition) -> None:
        """Continue at another position."""
        self.scheduler.reset(position.positions, position.next_stream, position.ended)


class RemoteRun:
    """Delivers outputs that workers compute.  The same interface as `LocalRun`.

    Workers start at the first `next`, or at `start_prefetch`.  Only one thread at a
    time, the consumer's, may call `next`, `start_prefetch` and `go_to`.  Meanwhile, any
    thread may call `set_workers`, `usage` and `close`, and read `position`.
    """

    def __init__(
        self,
        program: Runnable,
        position: RunPosition,
        options: RemoteOptions,
        counter: ErrorCounter | None,
    ) -> None:
        # The keys of the last output's records; used by the consumer's thread only.
        self.keys: Int64Array = NO_KEYS
        self._program = program
        self._start_position = position
        self._options = options
        self._error_counter = counter if program.tolerant else None
        self._running: _ScheduledWorkers | None = None
        # From the last call of `usage`, or from `close`; any thread may replace it.
        self._usage: RemoteStats | LocalStats | None = None
        # Measures receiving.  Only the consumer's thread changes it.
        self._times = StageTimes()
        # True after the first wait for workers.
        self._has_waited = False
        # Replaces `_running` once the successor's workers have started.
        self._successor: _ScheduledWorkers | None = None
        # Held while `_successor`, `_running` or `_options` changes.  All threads read
        # these without it, so they copy one to a local variable to use it twice.
        # Reentrant, because a signal handler may call `close` during `close`.
        self._change_lock = threading.RLock()
        # The process that made this object; a fork of it cannot use it.
        self._owner_pid = os.getpid()

    @property
    def workers(self) -> int:
        """The requested number of workers."""
        return self._options.workers

    @property
    def position(self) -> RunPosition:
        """The position after the last delivered output; calls no worker."""
        running = self._running
        if running is None:
            return self._start_position
        positions, turn, ended = running.scheduler.position()
        return RunPosition(
            self._start_position.worker_count,
            turn,
            [tuple(stream_position.tolist()) for stream_position in positions],
            ended,
            self._error_counter.count if self._error_counter else 0,
            self._start_position.epoch,
        )

    def next(self) -> Any:
        """Return the next output; wait for the workers.

        Raises:
            StopIteration: All streams have ended.
            WorkerDied: A worker died too often, or none could start.
            ArenaFull: The outputs that the caller keeps leave no room.
            TooManyErrors: More records failed than the limit; the output is due again.
            RuntimeError: Another thread closed this object, or a fork uses it.
            Exception: The user's code raised it in a worker.
        """
        timeout_s = self._options.stall_timeout
        while True:
            if self._successor is not None:
                self._switch_to_successor()
            running = self._running or self._start_first_workers()
            if self._has_waited:
                due = running.scheduler.next(timeout_s)
            else:
                due = self._wait_for_first(running, timeout_s)
            kind = due.kind
            if kind == "output":
                try:
                    output = self._deliver(running, due)
                except StopIteration as error:
                    raise as_failure(error, "unpickling an output") from error
                if type(output) is not TurnSkipped:
                    return output
            elif kind == "slow":
                activity = running.workers.activity(due.worker)
                log.warning("%s", slow_unit_message(due, activity))
                # The timeout is not negative here, see `slow_s` of the scheduler.
                timeout_s = max(0.0, timeout_s - due.waited_s)
                continue
            elif kind == "timeout":
                self._handle_stall(running.workers, due)
            elif kind == "end":
                raise StopIteration
            elif kind == "full":
                raise arena_full_error(due, "An output", "outputs", "copy")
            elif kind == "exited":
                death = death_message(due, self._options.max_restarts, self._program)
                raise WorkerDied(
                    f"{death}\n{running.workers.death_details(due.worker)}".strip()
                )
            else:
                raise closed_error(self._owner_pid)
            timeout_s = self._options.stall_timeout

    def start_prefetch(self) -> None:
        if self._running is None:
            self._start_first_workers()

    def set_workers(self, count: int) -> None:
        """Change the number of workers; the outputs and their order stay the same.

        The current workers continue until the new ones have started.  The new ones
        recompute outputs that the current ones had computed ahead.

        Args:
            count: At least 1.
        """
        backend = self._options.backend
        if backend is not None:
            backend = backend.resized(count)
        with self._change_lock:
            self._options = dataclasses.replace(
                self._options, workers=count, backend=backend
            )
            running = self._running
            if running is None:
                return
            self._close_successor()
            current = self.position
            # The successor starts with all streams ended, so that it computes nothing
            # before the switch.
            idle_position = dataclasses.replace(current, ended=[True] * current.streams)
            self._successor = self._start_workers(idle_position, running.workers)

    def usage(self) -> RemoteStats | LocalStats | None:
        """Return measurements of the workers, or None if they are not measured."""
        if (running := self._running) is not None:
            self._usage = running.workers.usage()
        if isinstance(self._usage, LocalStats):
            stages = {**self._usage.stages, **mean_times(self._times.by_clock)}
            return self._usage._replace(stages=stages)
        return self._usage

    def go_to(self, position: RunPosition) -> None:
        """Continue from another position with the same number of streams."""
        self.keys = NO_KEYS
        self._start_position = position
        if (running := self._running) is not None:
            running.go_to(position)

    def close(self) -> None:
        """End the workers; `next` starts them again, from the same position.

        Arrays that were delivered stay valid.
        """
        with self._change_lock:
            self._close_successor()
            if (running := self._running) is not None:
                self._start_position = self.position
                self.usage()
                running.workers.close()
                self._running = None

    def _wait_for_first(
        self, running: _ScheduledWorkers, timeout_s: float
    ) -> _core.NextResult:
        if self._options.backend is None:
            due = startup_progress.wait_for_first(running.scheduler, timeout_s)
        else:
            due = running.scheduler.next(timeout_s)
        self._has_waited = True
        return due

    def _start_first_workers(self) -> _ScheduledWorkers:
        options = self._options
        running = self._start_workers(self._start_position, None)
        with self._change_lock:
            self._running = running
            is_changed = self._options is not options
        if is_changed:  # Another thread called `set_workers` meanwhile.
            self.set_workers(self._options.workers)
        return running

    def _switch_to_successor(self) -> None:
        """Continue with the successor if its workers have started."""
        with self._change_lock:
            current, successor = self._running, self._successor
            if current is None or successor is None or not successor.workers.ready():
                return
            successor.scheduler.reset(*current.scheduler.position())
            self._running, self._successor = successor, None
            current.workers.close()

    def _close_successor(self) -> None:
        if self._successor is not None:
            self._successor.workers.close()
            self._successor = None

    def _start_workers(
        self, position: RunPosition, before: Workers | None
    ) -> _ScheduledWorkers:
        """Start a scheduler and its workers, which will replace `before`."""
        nesting.check_may_start_workers()
        program, options = self._program, self._options
        backend = options.backend
        count = options.workers if backend is None else backend.count()
        # An owned stream is computed by a single worker, so workers beyond the number
        # of streams would be idle.
        max_workers = program.streams if program.owned else count
        scheduler = _core.Scheduler(
            workers=min(count, max_workers),
            buffer=options.buffer if backend is None else backend.buffer,
            kind=_core.UnitKind.SEQUENTIAL if program.owned else _core.UnitKind.RANGE,
            unit_records=program.unit_records
            * (backend.units_at_once if backend else 1),
            max_restarts=options.max_restarts,
            memory_limit=options.memory_limit,
            lengths=[program.stream_length(s) for s in range(position.streams)],
            positions=position.positions,
            next_stream=position.next_stream,
            ended=position.ended,
            position_capacity=program.position_capacity,
            slow_s=SLOW_S if options.stall_timeout >= 0 else -1.0,
        )
        workers: Workers
        if backend is None:
            name = worker_name(options.buffer)
            workers = LauncherWorkers(scheduler, program, name=name)
        else:
            workers = backend.workers(scheduler, program, before)
        workers.start()
        return _ScheduledWorkers(scheduler, workers)

    def _deliver(self, running: _ScheduledWorkers, due: _core.NextResult) -> Any:
        """Return the output that is due, or the `TurnSkipped` in its place.

        Advances the scheduler, unless there are too many bad records.

        Raises:
            Exception: The user's code raised it in a worker, or unpickling the output.
            TooManyErrors: More records failed than the limit; the output is due again.
        """
        times = self._times
        times.calls_until_measured -= 1
        receive = running.workers.receive
        try:
            if times.calls_until_measured:
                element, keys = receive(due)
            else:
                element, keys = times.measure(RECEIVE, receive, due)
        except Exception as error:
            running.scheduler.advance()  # Receiving it again would fail again.
            error.add_note(failures.RECEIVING)
            raise
        if self._error_counter is None and not due.error:
            self.keys = keys
            running.scheduler.advance()
            return element
        element, failure = self._count_errors(element, due.error)
        if failure is None:
            self.keys = keys
        running.scheduler.advance()
        if isinstance(failure, BaseException):
            raise failure
        return element

    def _count_errors(self, element: Any, is_error: bool) -> tuple[Any, Any]:
        """Account for bad records; return the element and its failure.

        The failure is an exception, or a `TurnSkipped`, which is also the element; None
        if the output is not an error.

        Args:
            element: What a worker sent: an element, or if `is_error` a packed failure
                or a `TurnSkipped`.  With an error counter, a pair of that and the
                packed bad records, which is itself pickled if `is_error`.
            is_error: Whether the worker sent a failure.

        Raises:
            TooManyErrors: More records failed than the limit.
        """
        failure = errors = None
        if self._error_counter is not None:
            element, errors = pickle.loads(element) if is_error else element
        if is_error:
            packed = isinstance(element, bytes)
            failure = failures.unpack_failure(element) if packed else element
        if self._error_counter is not None and errors is not None:
            records, last_error = pickle.loads(errors)
            summary = records, failures.unpack_failure(last_error)
            self._error_counter.account(summary, failure)
        return element, failure

    def _handle_stall(self, workers: Workers, due: _core.NextResult) -> None:
        """Warn of a stall; kill its worker if `stall_action` is "restart"."""
        seconds = self._options.stall_timeout
        # No worker is at fault if memory is short, or if none has begun the output.
        if due.needed_bytes or due.worker < 0:
            log.warning("%s", stall_message(due, seconds))
            return
        restarts = self._options.stall_action == "restart"
        activity = workers.activity(due.worker)
        log.warning("%s", worker_stall_message(due, seconds, activity, restarts))
        if restarts:
            workers.kill(due.worker)
