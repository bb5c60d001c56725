"""Has `gristmill._observe` observe the iteration over a chain.

The class statement of each `IterDataset` wraps its ``__iter__``.  The wrapper observes
only the iterator of a chain's last node, the outermost.  A class whose `_IS_INNER` is
true is never outermost.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gristmill._base.report import Report


class Observer(Protocol):
    """The functions of `gristmill._observe.face` that datasets call."""

    def open_chain(self, dataset: Any, make: Callable[[Any], Any], counts: bool) -> Any:
        """Return an iterator over a chain, which is observed."""

    def report_of(self, iterator: Any, verify: bool, seconds: float) -> Report:
        """Return the report of an iterator."""

    def report_of_run(
        self, dataset: Any, seconds: float, consume: Any, verify: bool
    ) -> Report:
        """Iterate over a chain for some seconds and return the report."""

    def figure_of(self, dataset: Any) -> str | None:
        """Return a chain as an SVG picture; None if it cannot be drawn."""

    def get_execution_summary(self, ds: Any) -> Any:
        """Return Grain's message about what an iterator measured."""


_observers: list[Callable[[], Observer]] = []


def install(observer: Callable[[], Observer]) -> None:
    """Make datasets use the observer that `observer` returns."""
    _observers[:] = [observer]


def current() -> Observer:
    """Return the observer that was installed."""
    return _observers[0]()


class _Here(threading.local):
    """The state of this thread.

    Attributes:
        inside: Whether this thread is creating the iterators of a chain.
        counts: Whether chains are iterated over by the user, not as part of another
            one.
    """

    inside = False
    counts = True


_here = _Here()


def opening(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap an ``__iter__`` so that the outermost iterator of a chain is observed."""

    @functools.wraps(make)
    def __iter__(self: Any) -> Any:
        # A user's class may be pickled with this function, and what that refers to.
        return iterate(self, make)

    return __iter__


def iterate(dataset: Any, make: Callable[[Any], Any]) -> Any:
    """Return the iterator that `make` makes; observe it if it is the outermost."""
    if _here.inside or dataset._IS_INNER:
        return make(dataset)
    with as_inner():
        return current().open_chain(dataset, make, _here.counts)


@contextlib.contextmanager
def as_part() -> Iterator[None]:
    """Treat chains inside this context as parts of another one."""
    before = _here.counts
    _here.counts = False
    try:
        yield
    finally:
        _here.counts = before


@contextlib.contextmanager
def as_inner() -> Iterator[None]:
    """Do not observe iterators that are created inside this context."""
    before = _here.inside
    _here.inside = True
    try:
        yield
    finally:
        _here.inside = before
