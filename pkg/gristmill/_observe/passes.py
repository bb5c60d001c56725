"""Warns when a random order is iterated over again."""

from __future__ import annotations

from typing import Any

from gristmill._base import log


class PassCounter:
    """Counts the iterations over one loader or dataset.

    An iterator that returns one element only does not count, because programs look at
    the first batch.

    Attributes:
        text: The text to log, once, when an iteration repeats an earlier one.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._has_counted = False
        self._has_warned = False

    def begin(self) -> None:
        """Warn if the iteration that begins repeats an earlier one."""
        if self._has_counted and not self._has_warned:
            self._has_warned = True
            log.warning("%s", self.text)

    def count(self) -> None:
        """Count an iteration."""
        self._has_counted = True

    def renew(self) -> None:
        """Forget the iterations until now, so that the next one is not a repetition."""
        self._has_counted = False


class PassStart:
    """Counts an iteration at the second call of its iterator."""

    def __init__(self, passes: PassCounter) -> None:
        self._passes = passes
        self._has_begun = False

    def call(self, iterator: Any) -> None:
        """Count a call of ``next`` that begins."""
        if self._has_begun:
            self._passes.count()
            iterator._watch.pass_start = None
        elif not iterator._from_state:
            self._passes.begin()
        self._has_begun = True
