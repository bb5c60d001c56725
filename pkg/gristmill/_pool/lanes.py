"""Lanes: threads that take the workers' places in a scheduler and call a pool.

A lane claims a unit like a worker, has the pool compute it, and commits.  The slot then
holds little: the position of each output and, instead of the element, an int.  This is
twice the unit's id, plus 1 for the last output of the unit.  The elements stay in the
pool's memory and are decoded when they are due.

If a worker of the pool is lost with its node, or while it computes another unit, the
lane calls the next worker.  If its own unit may have ended the worker, the lane reports
that it has exited, like a worker that died.  The scheduler then releases the unit and
counts one attempt, and the lane continues as the next generation.
"""

from __future__ import annotations

import abc
import collections
import fcntl
import functools
import itertools
import os
import threading
import time
import traceback
import weakref
from typing import Any, Generic, TypeVar

from gristmill import _core
from gristmill._base.types import Int64Array
from gristmill._engine.stream import NO_KEYS, Position
from gristmill._engine.worker_stats import RemoteStats
from gristmill._engine.workers import COPIED_LEAF_BYTES, receive_output
from gristmill._hot import slot_reader, slot_writer
from gristmill._pool.call_metrics import CallTiming
from gristmill._pool.pool import CalledPool, Lane, Pool, TimedResult
from gristmill._pool.unit_task import Bytes, TaskResult, UnitTask

# Reported as the wait status of a lane, which has no process that exits.
UNKNOWN_STATUS = -1
_numbers = itertools.count()
# A lane gives up a unit after this many workers in a row were lost by other causes.
MAX_LOSSES = 20

P = TypeVar("P", bound=Pool)


class PoolLanes:
    """The workers of one scheduler, see `gristmill._engine.workers.Workers`.

    It closes itself with the last reference to it.  Its threads do not hold one.
    """

    def __init__(self, lanes: Lanes[Any]) -> None:
        self._lanes = lanes
        weakref.finalize(self, self._lanes.close)

    def followed_by(self, scheduler: _core.Scheduler, workers: int) -> PoolLanes:
        """Return lanes of another scheduler that use the same pool.

        Args:
            scheduler: The other scheduler.
            workers: The number of workers of the pool from now on.
        """
        pool = self._lanes.pool
        pool.resize(workers)
        return PoolLanes(type(self._lanes)(scheduler, pool))

    def start(self) -> None:
        self._lanes.start()

    def ready(self) -> bool:
        # Lanes are threads, which have started when `start` returns.
        return True

    def receive(self, due: _core.NextResult) -> tuple[Any, Int64Array]:
        return self._lanes.receive(due)

    def activity(self, worker: int) -> str:
        return self._lanes.activity(worker)

    def death_details(self, worker: int) -> str:
        return self._lanes.loss_reports.get(worker, "")

    def kill(self, worker: int) -> None:
        self._lanes.kill(worker)

    def usage(self) -> RemoteStats:
        return self._lanes.metrics.usage()

    def close(self) -> None:
        self._lanes.close()


class Lanes(abc.ABC, Generic[P]):
    """The state that the threads of a `PoolLanes` share.

    Subclasses define how a lane has the pool compute its units.  The consumer's thread
    calls `start` and `receive`; `close` runs in any thread.  Each lane writes only its
    own entry of `loss_reports`.
    """

    def __init__(self, scheduler: _core.Scheduler, pool: P) -> None:
        self.pool = pool
        # For each lane, a report on the last worker that it lost.
        self.loss_reports: dict[int, str] = {}
        self.metrics = pool.new_metrics()
        self._scheduler = scheduler
        self._payloads = Payloads()
        self._owner_pid = os.getpid()
        # The lanes of several schedulers may use the pool, see `followed_by`.
        self._owner = f"{self._owner_pid}-{next(_numbers)}"
        # Set by `start` and `close`.  The lanes read `_closing`.
        self._started = self._closing = False

    def start(self) -> None:
        """Open the pool and start the threads."""
        self.pool.open(self._owner)
        self._arena_fd = fcntl.fcntl(self._scheduler.arena_fd, fcntl.F_DUPFD_CLOEXEC, 3)
        # Lanes write to it to request larger slots, and `close` to end
        # `_serve_notifications`.
        self._notify_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._started = True
        self._scheduler.start_alone()
        lanes = range(len(self._scheduler.processes()))
        targets = [functools.partial(self._run, lane) for lane in lanes]
        targets.append(functools.partial(self._serve_notifications))
        self._threads_left = len(targets)
        # Guards `_threads_left`.
        self._threads_lock = threading.Lock()
        for target in targets:
            threading.Thread(target=target, name="gristmill-lane", daemon=True).start()

    def activity(self, lane: int) -> str:
        """Return a sentence about what a lane waits for."""
        return self.pool.activity(self._lane_id(lane))

    def kill(self, lane: int) -> None:
        """End the worker that a lane calls."""
        self.pool.end_worker(self._lane_id(lane))

    def receive(self, due: _core.NextResult) -> tuple[Any, Int64Array]:
        """Decode an output; see `gristmill._engine.workers.Workers.receive`."""
        element, keys = receive_output(self._scheduler, due)
        if due.error:  # The slot has the failure itself.
            return element, keys
        start_s = time.perf_counter()
        unit, is_last = divmod(element, 2)
        payload = self._payloads.payload_of(due.stream, unit, bool(is_last))
        element, keys, _ = slot_reader.decode(
            payload.ctypes.data,
            len(payload),
            due.index,
            lambda: payload,
            COPIED_LEAF_BYTES,
        )
        self.metrics.record_decoding(time.perf_counter() - start_s)
        return element, keys

    def close(self) -> None:
        """Close the pool and end the threads; does nothing in a fork of the process."""
        if self._closing or os.getpid() != self._owner_pid:
            return
        self._closing = True
        self._scheduler.close()
        if self._started:
            self.pool.close(self._owner)  # Ends the calls of lanes.
            os.eventfd_write(self._notify_fd, _CLOSE_VALUE)
            self._payloads.clear()

    def _lane_id(self, lane: int) -> Lane:
        return self._owner, lane

    def _run(self, lane: int) -> None:
        """Serve as one worker until the scheduler is closed."""
        generation = 1
        try:
            while not self._serve(lane, generation):
                if self.pool.failure:
                    self._scheduler.on_failed(self.pool.failure)
                    return
                self._scheduler.on_exited(lane, generation, UNKNOWN_STATUS)
                generation += 1
                if self._closing:
                    return
        except Exception:  # Otherwise, the program would wait forever for its units.
            self._scheduler.on_failed(traceback.format_exc())
        finally:
            self._end_thread()

    @abc.abstractmethod
    def _serve(self, lane: int, generation: int) -> bool:
        """Serve as one generation of a worker.

        Returns:
            True after the last unit; False if a worker was lost or none is left.
        """

    def _serve_notifications(self) -> None:
        """Notify the scheduler when a lane needs a larger slot, until `close`."""
        try:
            while os.eventfd_read(self._notify_fd) < _CLOSE_VALUE:
                self._scheduler.on_worker_notified()
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        """Count a thread that ends; the last one closes the descriptors."""
        with self._threads_lock:
            self._threads_left -= 1
            last = not self._threads_left
        if last:
            os.close(self._arena_fd)
            os.close(self._notify_fd)


class CallingLanes(Lanes[CalledPool]):
    """Lanes that call a pool for each unit."""

    def _serve(self, lane: int, generation: int) -> bool:
        """See `Lanes._serve`."""
        end = _core.WorkerEnd(self._arena_fd, self._notify_fd, lane, generation)
        self._scheduler.on_started(lane, generation, self._owner_pid)
        positions: dict[int, Position] = {}
        while unit := end.claim():
            answer = self._compute(lane, unit, positions)
            if answer is None:
                return False
            self._commit(end, unit, answer)
            positions[unit.stream] = answer.position
        return True

    def _compute(
        self, lane: int, unit: _core.Work, positions: dict[int, Position]
    ) -> TaskResult | None:
        """Return the answer for a unit; None if its worker was lost or none is left.

        Also returns None after `MAX_LOSSES` lost workers.  The caller then reports that
        the lane has exited.

        Args:
            lane: The lane that computes the unit.
            unit: The unit.
            positions: For each stream, the position after the last unit that this
                generation of the lane committed.
        """
        sequential = unit.kind is _core.UnitKind.SEQUENTIAL
        is_request = unit.kind is _core.UnitKind.REQUEST
        position_before: Position = ()
        if is_request:
            position_before = tuple(unit.position_before.tolist())
        elif sequential:
            if unit.continues_stream and unit.stream in positions:
                position_before = positions[unit.stream]
            else:
                position_before = tuple(unit.position_before.tolist())
        task = UnitTask(
            unit.stream,
            sequential,
            unit.first,
            unit.count,
            unit.attempt,
            position_before,
            unit.id if is_request else -1,
        )
        for _ in range(MAX_LOSSES):
            start_s = time.perf_counter()
            reply = self.pool.compute(self._lane_id(lane), task)
            if reply is None:  # The pool was closed or has failed.
                return None
            if isinstance(reply, TimedResult):
                answer = reply.result
                call = CallTiming(
                    start_s,
                    reply.ready_s,
                    time.perf_counter(),
                    len(answer.positions),
                    len(answer.payload),
                    answer.load,
                )
                self.metrics.record_call(reply.worker, call)
                return answer
            self.loss_reports[lane] = (
                f"{reply.worker} was lost while computing {task}: {reply.why}"
            )
            if reply.blames_unit:
                return None
        return None

    def _commit(
        self, end: _core.WorkerEnd, unit: _core.Work, answer: TaskResult
    ) -> None:
        """Write the positions of a unit to its slot, and keep the payload here."""
        self._payloads.add(unit.stream, unit.id, unit.id, answer.payload)
        outputs = [(2 * unit.id, NO_KEYS, position) for position in answer.positions]
        if outputs:
            outputs[-1] = 2 * unit.id + 1, *outputs[-1][1:]
        failure = None
        if answer.failure is not None:
            failure = answer.failure, answer.position
        writer = slot_writer.SlotWriter(unit.address, unit.capacity)
        try:
            used = slot_writer.encode(writer, outputs, failure)
        except slot_writer.SlotTooSmallError as need:
            address = end.request_larger_slot(need.bytes)
            if address is None:  # The unit was withdrawn, or memory ran out.
                return
            writer = slot_writer.SlotWriter(address, need.bytes)
            used = slot_writer.encode(writer, outputs, failure)
        count = len(outputs) + (failure is not None)
        end.commit(answer.status, count, used, answer.position)


# The value that `close` adds to the eventfd: more than the sum of all requests that
# lanes can make.
_CLOSE_VALUE = 1 << 32


class Payloads:
    """The payloads of units, from the commit until all outputs are delivered.

    Lanes add payloads, and the consumer takes them.
    """

    def __init__(self) -> None:
        # Guards the fields below.  A collection of garbage in a method may `clear`.
        self._lock = threading.RLock()
        # Maps each stream to the ids and payloads of its units, keyed by their names.
        self._by_stream: dict[int, dict[int, tuple[int, Bytes]]] = (
            collections.defaultdict(dict)
        )
        # The stream and the name of the last unit whose last output was due.  Its
        # payload is dropped when an output of another unit is due.
        self._finished = (0, -1)

    def add(self, stream: int, name: int, unit: int, payload: Bytes) -> None:
        """Add the payload of a unit.

        Args:
            stream: The stream of the unit.
            name: The number of the unit in its slot.
            unit: The id of the unit.
            payload: The payload.
        """
        with self._lock:
            self._by_stream[stream][name] = unit, payload

    def add_once(self, stream: int, name: int, unit: int, payload: Bytes) -> Bytes:
        """Add the payload of a unit, unless it has one; return the one that it has."""
        with self._lock:
            return self._by_stream[stream].setdefault(name, (unit, payload))[1]

    def payload_of(self, stream: int, name: int, is_last: bool) -> Bytes:
        """Return the payload of a unit, one of whose outputs is due.

        An output that was not taken can be due again.  Drops the payloads of older
        units of the stream.  These were delivered or withdrawn, since the units of a
        stream are due in the order of their ids.

        Args:
            stream: The stream of the unit.
            name: The number of the unit in its slot.
            is_last: Whether the unit's last output is due.
        """
        with self._lock:
            if self._finished != (stream, name):
                finished_stream, finished_name = self._finished
                self._by_stream[finished_stream].pop(finished_name, None)
            payloads = self._by_stream[stream]
            unit, payload = payloads[name]
            for older in [key for key, (id, _) in payloads.items() if id < unit]:
                del payloads[older]
            if is_last:
                self._finished = stream, name
            return payload

    def clear(self) -> None:
        with self._lock:
            self._by_stream.clear()
