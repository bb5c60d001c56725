"""What calls of actors take: for reports, and for Ray's own metrics.

=========================  =======  ===============================================
metric                     kind     what
=========================  =======  ===============================================
``gristmill_actors``       gauge    actors that have started
``gristmill_actors_lost``  counter  those that were lost
``gristmill_calls``        counter  answers of actors
``gristmill_bytes``        counter  their size
``gristmill_computing_s``  counter  how long actors computed them
``gristmill_moving_s``     counter  how long they were then on their way
``gristmill_receiving_s``  counter  how long elements took to be made of them
=========================  =======  ===============================================

Ray puts ``ray_`` before all names and ``_total`` behind those of counters.  The tag
``node`` of those about answers is the address of the actor's machine.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, NamedTuple, Protocol

from gristmill._engine.usage import FarWorker, Usage

# Outputs that are received between two times that Ray is told of them.
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
    """The part of an actor that is counted.

    Attributes:
        home: Its process; None until it has started.
        lost: Why it ended; empty while it lives.
    """

    @property
    def home(self) -> Home | None: ...
    @property
    def lost(self) -> str: ...


class Load(NamedTuple):
    """What an actor says of itself with an answer, in s by its own clock.

    Attributes:
        computing_s: How long this one took.
        busy_s: How long all took that it ever computed.
        alive_s: How long ago the first one was begun.
    """

    computing_s: float
    busy_s: float
    alive_s: float


class Call(NamedTuple):
    """One answer: when it was asked for, ready where it was computed, and here."""

    asked: float
    ready: float
    here: float
    outputs: int
    bytes: int
    load: Load


class Flow:
    """What the actors that the lanes of one scheduler ask are measured to do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Lost ones go with the last who knows them.  What each said first and last:
        # answers may be taken in another order.
        self._loads: weakref.WeakKeyDictionary[Actor, tuple[Load, Load]] = (
            weakref.WeakKeyDictionary()
        )
        self._known: weakref.WeakKeyDictionary[Actor, FarWorker] = (
            weakref.WeakKeyDictionary()
        )
        self._received = 0
        self._receiving_s = self._told_s = 0.0

    def answered(self, actor: Actor, call: Call) -> None:
        """Take an answer into account."""
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
        """Take an output into account that was made of an answer."""
        self._received += 1
        self._receiving_s += seconds
        if self._received % TELL_EVERY == 0:
            _counter("receiving_s").inc(self._receiving_s - self._told_s)
            self._told_s = self._receiving_s

    def usage(self) -> Usage:
        """All of it so far, of the actors that live."""
        with self._lock:
            known = [one for actor, one in self._known.items() if not actor.lost]
        return Usage(tuple(known), self._received, self._receiving_s)


def _age(load: Load) -> float:
    return load.alive_s


def lost() -> None:
    """Count an actor that was lost."""
    _counter("actors_lost").inc()


def started(more: int) -> None:
    """Count actors of this process that have started, or, below 0, that ended."""
    with _there.lock:
        _there.count += more
        _gauge().set(_there.count)


class _There:
    """How many actors all loaders of this process have."""

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
