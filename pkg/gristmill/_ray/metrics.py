"""Measures calls of actors, for reports and for Ray's metrics.

=========================  =======  ===============================================
metric                     kind     meaning
=========================  =======  ===============================================
``gristmill_actors``       gauge    actors that have started
``gristmill_actors_lost``  counter  actors that were lost
``gristmill_calls``        counter  answers of actors
``gristmill_bytes``        counter  size of the answers
``gristmill_computing_s``  counter  time that actors computed
``gristmill_moving_s``     counter  time from when an answer was ready to its arrival
``gristmill_receiving_s``  counter  time to decode elements from the answers
=========================  =======  ===============================================

Ray adds the prefix ``ray_`` to all names, and ``_total`` to the names of counters.  The
tag ``node`` of metrics of answers is the address of the actor's machine.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, NamedTuple, Protocol

from gristmill._engine.worker_stats import RemoteStats, RemoteWorkerStats

# Outputs between two updates of Ray's counter.
OUTPUTS_PER_REPORT = 64


class MeasuredProcess(Protocol):
    """The process of an actor.

    Attributes:
        pid: Its process id.
        address: The address of its machine.
    """

    @property
    def pid(self) -> int: ...
    @property
    def address(self) -> str: ...


class MeasuredActor(Protocol):
    """The attributes of an actor that `RayMetrics` reads.

    Attributes:
        location: Its process; None until it has started.
        loss_reason: The reason why it ended; empty while it is alive.
    """

    @property
    def location(self) -> MeasuredProcess | None: ...
    @property
    def loss_reason(self) -> str: ...


class ActorLoad(NamedTuple):
    """The times of an actor after an answer, in s on its own clock.

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
        load: The computing times of the actor.
    """

    start_s: float
    ready_s: float
    arrival_s: float
    outputs: int
    bytes: int
    load: ActorLoad


class RayMetrics:
    """Measures the actors that compute for one scheduler.

    Lanes call `record_call`.  Only the consumer's thread calls `record_decoding`.
    """

    def __init__(self) -> None:
        # Guards `_loads` and `_stats`.
        self._lock = threading.Lock()
        # Weak keys drop a lost actor with the last reference to it.  The values are the
        # first and last load of the actor by its clock, since answers may be counted
        # in another order.
        self._loads: weakref.WeakKeyDictionary[
            MeasuredActor, tuple[ActorLoad, ActorLoad]
        ] = weakref.WeakKeyDictionary()
        self._stats: weakref.WeakKeyDictionary[MeasuredActor, RemoteWorkerStats] = (
            weakref.WeakKeyDictionary()
        )
        self._decoded = 0
        # Time to decode outputs, and the part of it that Ray's counter contains.
        self._decode_s = self._reported_decode_s = 0.0

    def record_call(self, actor: MeasuredActor, call: CallTiming) -> None:
        """Count an answer."""
        assert actor.location is not None
        location, load = actor.location, call.load
        transfer_s = call.arrival_s - call.ready_s
        with self._lock:
            loads = *self._loads.get(actor, ()), load
            first, last = self._loads[actor] = (
                min(loads, key=_alive_s),
                max(loads, key=_alive_s),
            )
            stats = self._stats.get(
                actor, RemoteWorkerStats(location.pid, location.address)
            )
            self._stats[actor] = stats._replace(
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
        tags = {"node": location.address}
        for name, value in (
            ("calls", 1),
            ("bytes", call.bytes),
            ("computing_s", load.computing_s),
            ("moving_s", transfer_s),
        ):
            # Ray takes no increment of 0.
            if value > 0:
                _counter(name).inc(value, tags)

    def record_decoding(self, seconds: float) -> None:
        """Count an output that was decoded from an answer."""
        self._decoded += 1
        self._decode_s += seconds
        if self._decoded % OUTPUTS_PER_REPORT == 0:
            _counter("receiving_s").inc(self._decode_s - self._reported_decode_s)
            self._reported_decode_s = self._decode_s

    def usage(self) -> RemoteStats:
        """Return the measurements of the actors that are alive."""
        with self._lock:
            workers = tuple(
                stats for actor, stats in self._stats.items() if not actor.loss_reason
            )
        return RemoteStats(workers, self._decoded, self._decode_s)


def _alive_s(load: ActorLoad) -> float:
    return load.alive_s


def count_lost_actor() -> None:
    """Count an actor that was lost."""
    _counter("actors_lost").inc()


def add_running_actors(change: int) -> None:
    """Add to the number of running actors of this process."""
    with _actor_gauge.lock:
        _actor_gauge.count += change
        _gauge().set(_actor_gauge.count)


class _ActorGauge:
    """The number of actors that all loaders of this process use; `lock` guards it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0


_actor_gauge = _ActorGauge()

_DESCRIPTIONS = {
    "actors_lost": "Actors of Gristmill that were lost.",
    "calls": "Answers of Gristmill's actors.",
    "bytes": "Bytes of the answers of Gristmill's actors.",
    "computing_s": "Seconds for which Gristmill's actors computed.",
    "moving_s": "Seconds from when answers were ready to their arrival.",
    "receiving_s": "Seconds to decode elements from the answers.",
}
_PER_NODE = ("calls", "bytes", "computing_s", "moving_s")


@functools.cache
def _counter(name: str) -> Any:
    from ray.util import metrics

    tags = ("node",) if name in _PER_NODE else ()
    return metrics.Counter(f"gristmill_{name}", _DESCRIPTIONS[name], tags)


@functools.cache
def _gauge() -> Any:
    from ray.util import metrics

    return metrics.Gauge("gristmill_actors", "Actors of Gristmill that have started.")
