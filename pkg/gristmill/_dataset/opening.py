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
from typing import Any


class _Here(threading.local):
    """Whether this thread is making the iterators of a chain."""

    inside = False


_here = _Here()


def opening(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap an ``__iter__``, so that the outermost one of a chain is looked at."""

    @functools.wraps(make)
    def __iter__(self: Any) -> Any:
        if _here.inside or self._IS_INNER:
            return make(self)
        from gristmill._dataset import watching  # It is made of nodes itself.

        _here.inside = True
        try:
            return watching.open_chain(self, make)
        finally:
            _here.inside = False

    return __iter__


@contextlib.contextmanager
def as_inner() -> Iterator[None]:
    """Iterate, inside the context, over a chain as over a part of another one."""
    before = _here.inside
    _here.inside = True
    try:
        yield
    finally:
        _here.inside = before
