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
    from gristmill._base.source_counts import SourceCount


class Observer(Protocol):
    """The functions of `gristmill._observe.api` that datasets call."""

    def open_chain(
        self, dataset: Any, open_iterator: Callable[[Any], Any], is_users_chain: bool
    ) -> Any:
        """Return an iterator over a chain, which is observed."""

    def report_of(self, iterator: Any, verify: bool, seconds: float) -> Report:
        """Return the report of an iterator."""

    def consumed_of(self, iterator: Any, lengths: Any) -> dict[str, SourceCount]:
        """Return what an iterator has delivered, by source."""

    def report_of_run(
        self, dataset: Any, seconds: float, consume: Any, verify: bool, trace: bool
    ) -> Report:
        """Iterate over a chain for some seconds and return the report."""

    def figure_of(self, dataset: Any) -> str | None:
        """Return a chain as an SVG picture; None if it cannot be drawn."""

    def get_execution_summary(self, ds: Any) -> Any:
        """Return Grain's message about what an iterator measured."""


# The argument of `set_observer`; empty before the call.
_observers: list[Callable[[], Observer]] = []


def set_observer(observer: Callable[[], Observer]) -> None:
    """Set the function that returns the observer of all chains."""
    _observers[:] = [observer]


def get_observer() -> Observer:
    """Return the observer of all chains."""
    return _observers[0]()


class _ObservationState(threading.local):
    """The state of this thread.

    Attributes:
        is_suppressed: Whether this thread is creating the iterators of a chain.
        is_users_chain: Whether chains are iterated over by the user, not as part of
            another one.
    """

    is_suppressed = False
    is_users_chain = True


_thread_state = _ObservationState()


def observe_outermost(open_iterator: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap an ``__iter__`` so that the outermost iterator of a chain is observed."""

    @functools.wraps(open_iterator)
    def __iter__(self: Any) -> Any:
        # A user's class may be pickled with this function, and what that refers to.
        return iterate(self, open_iterator)

    return __iter__


def iterate(dataset: Any, open_iterator: Callable[[Any], Any]) -> Any:
    """Return `open_iterator(dataset)`, observed if it is the outermost iterator."""
    if _thread_state.is_suppressed or dataset._IS_INNER:
        return open_iterator(dataset)
    with suppress_observation():
        return get_observer().open_chain(
            dataset, open_iterator, _thread_state.is_users_chain
        )


@contextlib.contextmanager
def treat_as_part() -> Iterator[None]:
    """Treat chains inside this context as parts of another one."""
    was_users_chain = _thread_state.is_users_chain
    _thread_state.is_users_chain = False
    try:
        yield
    finally:
        _thread_state.is_users_chain = was_users_chain


@contextlib.contextmanager
def suppress_observation() -> Iterator[None]:
    """Do not observe iterators that are created inside this context."""
    was_suppressed = _thread_state.is_suppressed
    _thread_state.is_suppressed = True
    try:
        yield
    finally:
        _thread_state.is_suppressed = was_suppressed
