"""Measures the calls of a pool's workers, for reports."""

from __future__ import annotations

import threading
import weakref
from typing import ClassVar, NamedTuple, Protocol

from gristmill._engine.worker_stats import RemoteStats, RemoteWorkerStats, WorkersText


class MeasuredProcess(Protocol):
    """A process of a pool.

    Attributes:
        pid: Its process id.
        address: The address of its machine.
    """

    @property
    def pid(self) -> int: ...
    @property
    def address(self) -> str: ...


class MeasuredWorker(Protocol):
    """The attributes of a pool's worker that `CallMetrics` reads.

    Attributes:
        location: Its process; None until it has started.
        loss_reason: The reason why it ended; empty while it is alive.
    """

    @property
    def location(self) -> MeasuredProcess | None: ...
    @property
    def loss_reason(self) -> str: ...


class ProcessLoad(NamedTuple):
    """The times of a worker after an answer, in s on its own clock.

    Attributes:
        computing_s: Time to compute this answer.
        busy_s: Time to compute all its answers.
        alive_s: Time since it began the first one.
    """

    computing_s: float
    busy_s: float
    alive_s: float


class CallTiming(NamedTuple):
    """The times of one call, by `time.perf_counter`, and its answer.

    Attributes:
        start_s: The time of the call.
        ready_s: The time at which the answer was ready.
        arrival_s: The time at which the caller had the answer.
        outputs: The number of outputs in the answer.
        bytes: The size of the outputs.
        load: The computing times of the worker.
    """

    start_s: float
    ready_s: float
    arrival_s: float
    outputs: int
    bytes: int
    load: ProcessLoad


class CallMetrics:
    """Measures the workers of a pool that compute for one scheduler.

    Lanes call `record_call`.  Only the consumer's thread calls `record_decoding`.

    Attributes:
        workers_text: See `RemoteStats`.
    """

    workers_text: ClassVar[WorkersText] = "workers"

    def __init__(self) -> None:
        # Guards `_loads` and `_stats`.
        self._lock = threading.Lock()
        # Weak keys drop a lost worker with the last reference to it.  The values are
        # the first and last load of the worker by its clock, since answers may be
        # counted in another order.
        self._loads: weakref.WeakKeyDictionary[
            MeasuredWorker, tuple[ProcessLoad, ProcessLoad]
        ] = weakref.WeakKeyDictionary()
        self._stats: weakref.WeakKeyDictionary[MeasuredWorker, RemoteWorkerStats] = (
            weakref.WeakKeyDictionary()
        )
        self._decoded = 0
        # Time to decode outputs.
        self._decode_s = 0.0

    def record_call(self, worker: MeasuredWorker, call: CallTiming) -> None:
        """Count an answer."""
        assert worker.location is not None
        location, load = worker.location, call.load
        transfer_s = call.arrival_s - call.ready_s
        with self._lock:
            loads = *self._loads.get(worker, ()), load
            first, last = self._loads[worker] = (
                min(loads, key=_alive_s),
                max(loads, key=_alive_s),
            )
            stats = self._stats.get(
                worker, RemoteWorkerStats(location.pid, location.address)
            )
            self._stats[worker] = stats._replace(
                # The first answer was computed before `first` was measured.
                alive_s=last.alive_s - first.alive_s + first.computing_s,
                busy_s=last.busy_s - first.busy_s + first.computing_s,
                calls=stats.calls + 1,
                outputs=stats.outputs + call.outputs,
                bytes=stats.bytes + call.bytes,
                call_s=stats.call_s + call.arrival_s - call.start_s,
                computing_s=stats.computing_s + load.computing_s,
                transfer_s=stats.transfer_s + transfer_s,
            )

    def record_decoding(self, seconds: float) -> None:
        """Count an output that was decoded from an answer."""
        self._decoded += 1
        self._decode_s += seconds

    def usage(self) -> RemoteStats:
        """Return the measurements of the workers that are alive."""
        with self._lock:
            workers = tuple(
                stats for worker, stats in self._stats.items() if not worker.loss_reason
            )
        return RemoteStats(workers, self._decoded, self._decode_s, self.workers_text)


def _alive_s(load: ProcessLoad) -> float:
    return load.alive_s
