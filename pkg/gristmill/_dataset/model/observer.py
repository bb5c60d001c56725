"""What looks at chains while somebody iterates over them: `gristmill._observe`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gristmill._observe.report import Report


class Observer(Protocol):
    """What datasets and their iterators ask of it."""

    def open_chain(self, dataset: Any, make: Callable[[Any], Any]) -> Any:
        """An iterator over a chain, by its last node and the node's ``__iter__``."""

    def report_of(self, iterator: Any) -> Report:
        """What is known of an iterator's run so far."""

    def report_of_run(
        self, dataset: Any, seconds: float, consume: Callable[[Any], Any] | None
    ) -> Report:
        """What a short run of a chain shows."""

    def figure_of(self, dataset: Any) -> str | None:
        """The picture of a chain as HTML; None where it has too many nodes."""


_observers: list[Callable[[], Observer]] = []


def install(observer: Callable[[], Observer]) -> None:
    """Let datasets ask what this returns, from the first question on."""
    _observers[:] = [observer]


def current() -> Observer:
    """The one that was installed."""
    return _observers[0]()
