"""Warns when a random order is iterated over again.

Only the first two calls of an iterator are looked at.  It has another class until
then, as in `watch.py`, so that the others cost nothing.
"""

from __future__ import annotations

import functools
from typing import Any

from gristmill._base import log
from gristmill._observe.watch import like


class Passes:
    """Counts the iterations over one loader or dataset.

    An iterator that is asked for one element only does not count: somebody has looked
    at the first batch.

    Args:
        text: What to log, once, when an iteration repeats an earlier one.

    Attributes:
        text: See above.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._counted = False
        self._warned = False

    def begin(self) -> None:
        """Warn if the iteration that begins repeats an earlier one."""
        if self._counted and not self._warned:
            self._warned = True
            log.warning("%s", self.text)

    def count(self) -> None:
        """Count an iteration."""
        self._counted = True

    def renew(self) -> None:
        """Forget the iterations until now: what comes next is not a repetition."""
        self._counted = False


class _Opening:
    """The beginning of one iterator: its own class, and what counts it."""

    def __init__(self, kind: type, passes: Passes) -> None:
        self.kind = kind
        self.passes = passes
        # False for an iterator that goes on from a state.
        self.at_start = True
        self.begun = False

    def call(self, iterator: Any) -> None:
        """Look at a call of ``next``."""
        if self.begun:
            self.passes.count()
            iterator.__class__ = self.kind
        elif self.at_start:
            self.passes.begin()
        self.begun = True


def follow(iterator: Any, passes: Passes) -> None:
    """Let an iterator that is at its beginning be counted once it has begun."""
    kind: Any = type(iterator)
    try:
        iterator.__class__ = _opening_class(kind)
    except TypeError:
        return  # Its class allows no other: it goes uncounted.
    iterator._opening = _Opening(kind, passes)


@functools.cache
def _opening_class(kind: Any) -> Any:
    """A class of iterators that differs from `kind` in that beginnings are counted."""

    def __next__(self: Any) -> Any:
        self._opening.call(self)
        return kind.__next__(self)

    def set_state(self: Any, state: Any) -> None:
        self._opening.at_start = False
        kind.set_state(self, state)

    return like(kind, __next__=__next__, set_state=set_state)
