"""Warns when a random order is iterated over again."""

from __future__ import annotations

from typing import Any

from gristmill._base import log


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


class Opening:
    """Looks at the first two calls of an iterator; see `Watch.opening`."""

    def __init__(self, passes: Passes) -> None:
        self._passes = passes
        self._begun = False

    def call(self, iterator: Any) -> None:
        """Look at a call of ``next`` that begins."""
        if self._begun:
            self._passes.count()
            iterator._watch.opening = None
        elif not iterator._from_state:
            self._passes.begin()
        self._begun = True
