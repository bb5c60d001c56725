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
from typing import Any

from gristmill._pool.call_metrics import CallMetrics, CallTiming, MeasuredWorker

# Outputs between two updates of Ray's counter.
OUTPUTS_PER_REPORT = 64


class RayMetrics(CallMetrics):
    """Also counts in Ray's metrics."""

    workers_text = "actors"

    def __init__(self) -> None:
        super().__init__()
        # The part of `_decode_s` that Ray's counter contains.
        self._reported_decode_s = 0.0

    def record_call(self, worker: MeasuredWorker, call: CallTiming) -> None:
        super().record_call(worker, call)
        assert worker.location is not None
        tags = {"node": worker.location.address}
        for name, value in (
            ("calls", 1),
            ("bytes", call.bytes),
            ("computing_s", call.load.computing_s),
            ("moving_s", call.arrival_s - call.ready_s),
        ):
            # Ray takes no increment of 0.
            if value > 0:
                _counter(name).inc(value, tags)

    def record_decoding(self, seconds: float) -> None:
        super().record_decoding(seconds)
        if self._decoded % OUTPUTS_PER_REPORT == 0:
            _counter("receiving_s").inc(self._decode_s - self._reported_decode_s)
            self._reported_decode_s = self._decode_s


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
