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

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iterators: its order and its random draws.

        Epoch e has the records, their order, indices and random numbers of the e-th
        epoch of a sampler with ``num_epochs=None``.  With ``num_epochs=n`` an iterator
        returns n epochs, from the sampler's epoch ``n * epoch`` on; without an end it
        starts at `epoch`.  Existing iterators stay in their epochs.

        Args:
            epoch: At least 0; a new loader has epoch 0.

        Raises:
            TypeError: The epoch is not an int, or the sampler is your own and has no
                method ``set_epoch(epoch)``, which is called on a copy of it.
            ValueError: The epoch is negative.
            OverflowError: The epoch does not fit in 64 bits.

        Example:
            >>> loader = gristmill.load(range(4), shuffle=True, seed=1, num_epochs=1)
            >>> first = list(loader)
            >>> loader.set_epoch(1)
            >>> first, list(loader)
            ([1, 2, 3, 0], [0, 3, 1, 2])
        """
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
