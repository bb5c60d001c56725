"""What happens when somebody iterates over a chain, rather than one of its nodes.

``__iter__`` of each class of `IterDataset` is wrapped once, by the class statement.
The wrapper tells the call on a chain's last node, the outermost, from those that it
makes on the nodes above: only the outermost is looked at.  A class whose `_IS_INNER` is
true is never outermost.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from gristmill._base.types import T
from gristmill._dataset.model import observer

if TYPE_CHECKING:
    from gristmill._observe.report import Report


class _Here(threading.local):
    """Whether this thread is making the iterators of a chain."""

    inside = False


_here = _Here()


class Opening(Generic[T]):
    """What is looked at while somebody iterates over it."""

    # Whether iterating over it is always part of iterating over another one.
    _IS_INNER: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__iter__" in cls.__dict__:
            cls.__iter__ = _opening(cls.__dict__["__iter__"])  # type: ignore[attr-defined]

    def report(
        self, seconds: float = 3.0, consume: Callable[[T], Any] | None = None
    ) -> Report:
        """Iterate for a short time, and find out which node limits how fast.

        The first element, with which workers start, does not count.

        Args:
            seconds: About how long, in s; at most until the data ends.
            consume: Called with each element, as the loop that will use them; by
                default they are dropped.

        Raises:
            ValueError: `seconds` is not positive.

        Example:
            >>> ds = gristmill.MapDataset.range(10**6).to_iter_dataset().batch(100)
            >>> report = ds.report(seconds=0.2)
            >>> report.outputs > 0
            True
        """
        return observer.current().report_of_run(self, seconds, consume)


def _opening(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap an ``__iter__``, so that the outermost one of a chain is looked at."""

    @functools.wraps(make)
    def __iter__(self: Any) -> Any:
        # A user's class may be pickled with this function, and what that refers to.
        return iterate(self, make)

    return __iter__


def iterate(dataset: Any, make: Callable[[Any], Any]) -> Any:
    """What `make` makes of a dataset; looked at, if that is the outermost."""
    if _here.inside or dataset._IS_INNER:
        return make(dataset)
    _here.inside = True
    try:
        return observer.current().open_chain(dataset, make)
    finally:
        _here.inside = False


@contextlib.contextmanager
def as_inner() -> Iterator[None]:
    """Iterate, inside the context, over a chain as over a part of another one."""
    before = _here.inside
    _here.inside = True
    try:
        yield
    finally:
        _here.inside = before
