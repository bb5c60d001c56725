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

from gristmill._engine.worker_stats import FarWorker, Usage

# Outputs between two updates of Ray's counter.
TELL_EVERY = 64


class Home(Protocol):
    """The process of an actor.

    Attributes:
        pid: Its process id.
        address: The address of its machine.
    """

    @property
    def pid(self) -> int: ...
    @property
    def address(self) -> str: ...


class Actor(Protocol):
    """The attributes of an actor that `Flow` reads.

    Attributes:
        home: Its process; None until it has started.
        lost: The reason why it ended; empty while it is alive.
    """

    @property
    def home(self) -> Home | None: ...
    @property
    def lost(self) -> str: ...


class Load(NamedTuple):
    """The times of an actor after an answer, in s on its own clock.

    Attributes:
        computing_s: Time to compute this answer.
        busy_s: Time to compute all its answers.
        alive_s: Time since it began the first one.
    """

    computing_s: float
    busy_s: float
    alive_s: float


class Call(NamedTuple):
    """One answer, with the times of the call, of its completion and of its arrival."""

    asked: float
    ready: float
    here: float
    outputs: int
    bytes: int
    load: Load


class Flow:
    """Measures the actors that compute for one scheduler."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Weak keys drop a lost actor with the last reference to it.  The values are the
        # first and last load of the actor by its clock, since answers may be counted
        # in another order.
        self._loads: weakref.WeakKeyDictionary[Actor, tuple[Load, Load]] = (
            weakref.WeakKeyDictionary()
        )
        self._known: weakref.WeakKeyDictionary[Actor, FarWorker] = (
            weakref.WeakKeyDictionary()
        )
        self._received = 0
        self._receiving_s = self._told_s = 0.0

    def answered(self, actor: Actor, call: Call) -> None:
        """Count an answer."""
        assert actor.home is not None
        home, load = actor.home, call.load
        moving_s = call.here - call.ready
        with self._lock:
            said = *self._loads.get(actor, ()), load
            first, last = self._loads[actor] = (
                min(said, key=_age),
                max(said, key=_age),
            )
            known = self._known.get(actor, FarWorker(home.pid, home.address))
            self._known[actor] = known._replace(
                alive_s=last.alive_s - first.alive_s + first.computing_s,
                busy_s=last.busy_s - first.busy_s + first.computing_s,
                calls=known.calls + 1,
                outputs=known.outputs + call.outputs,
                bytes=known.bytes + call.bytes,
                asked_s=known.asked_s + call.here - call.asked,
                computing_s=known.computing_s + load.computing_s,
                moving_s=known.moving_s + moving_s,
            )
        tags = {"node": home.address}
        for name, value in (
            ("calls", 1),
            ("bytes", call.bytes),
            ("computing_s", load.computing_s),
            ("moving_s", moving_s),
        ):
            # Ray takes no increment of 0.
            if value > 0:
                _counter(name).inc(value, tags)

    def received(self, seconds: float) -> None:
        """Count an output that was decoded from an answer."""
        self._received += 1
        self._receiving_s += seconds
        if self._received % TELL_EVERY == 0:
            _counter("receiving_s").inc(self._receiving_s - self._told_s)
            self._told_s = self._receiving_s

    def usage(self) -> Usage:
        """Return the measurements of the actors that are alive."""
        with self._lock:
            known = [one for actor, one in self._known.items() if not actor.lost]
        return Usage(tuple(known), self._received, self._receiving_s)


def _age(load: Load) -> float:
    return load.alive_s


def lost() -> None:
    """Count an actor that was lost."""
    _counter("actors_lost").inc()


def started(more: int) -> None:
    """Add to the number of running actors of this process."""
    with _there.lock:
        _there.count += more
        _gauge().set(_there.count)


class _There:
    """The number of actors that all loaders of this process use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0


_there = _There()

_ABOUT = {
    "actors_lost": "Actors of Gristmill that were lost.",
    "calls": "Answers of Gristmill's actors.",
    "bytes": "Bytes of the answers of Gristmill's actors.",
    "computing_s": "Seconds for which Gristmill's actors computed.",
    "moving_s": "Seconds for which answers that were ready were on their way.",
    "receiving_s": "Seconds that elements took to be made of the answers.",
}
_OF_NODES = ("calls", "bytes", "computing_s", "moving_s")


@functools.cache
def _counter(name: str) -> Any:
    from ray.util import metrics

    tags = ("node",) if name in _OF_NODES else ()
    return metrics.Counter(f"gristmill_{name}", _ABOUT[name], tags)


@functools.cache
def _gauge() -> Any:
    from ray.util import metrics

    return metrics.Gauge("gristmill_actors", "Actors of Gristmill that have started.")
