"""The epochs of a `DataLoader`: each has its own order and random draws."""

from __future__ import annotations

from typing import Any, TypeVar

from gristmill._base.epoch_context import check_epoch
from gristmill._engine import compilation
from gristmill._observe.passes import PassCounter, PassStart

Iterated = TypeVar("Iterated", bound=Any)
_REPEATED = (
    "This DataLoader is iterated over again, in the same order and with the same random"
    " draws as before. Call loader.set_epoch(epoch) before each epoch for a new order"
    " and new draws, or loader.set_epoch(0) to repeat the same ones."
)


class Epochs:
    """A base of `DataLoader` that keeps the epoch of the next iterators."""

    _program: compilation.LoaderProgram
    _epoch = 0
    # None if all epochs are the same.
    _passes: PassCounter | None = None

    def _set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iterators; see `DataLoader.set_epoch`."""
        epoch = check_epoch(epoch)
        compilation.in_epoch(self._program, epoch)  # Checks the epoch.
        self._epoch = epoch
        if self._passes is not None:
            self._passes.renew()

    def _watch_epochs(self, operations: list[Any]) -> None:
        """Warn from now on if a random epoch is repeated."""
        if compilation.changes_with_epoch(self._program, operations):
            self._passes = PassCounter(_REPEATED)

    def _register(self, iterator: Iterated) -> Iterated:
        """Return an iterator; count its pass if epochs differ, see `PassStart`."""
        if self._passes is not None:
            iterator._watch.pass_start = PassStart(self._passes)
        return iterator
