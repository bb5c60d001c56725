"""The epochs of a `DataLoader`: each has an order and random draws of its own."""

from __future__ import annotations

import operator
from typing import Any

from gristmill._base.checks import check_integer
from gristmill._engine import compilation
from gristmill._observe.passes import Opening, Passes

_REPEATED = (
    "This DataLoader is iterated over again, in the same order and with the same random"
    " draws as before. Call loader.set_epoch(epoch) before each epoch for those of that"
    " epoch, or loader.set_epoch(0) if the same ones are meant."
)


class Epochs:
    """A base of `DataLoader`: which epoch the next iterator gives."""

    _program: compilation.LoaderProgram
    _epoch = 0
    # None if all epochs are the same.
    _passes: Passes | None = None

    def set_epoch(self, epoch: int) -> None:
        """Let the next iterators give another epoch: its order and its random draws.

        Epoch e has what the e-th epoch of a sampler with ``num_epochs=None`` has: the
        same records in the same order, with the same random numbers and indices.  With
        ``num_epochs=n`` each iterator gives n epochs, and those of `epoch` begin with
        the sampler's epoch ``n * epoch``; without an end they go on from epoch `epoch`.
        Iterators that were made before stay in their epoch, and a state goes on in the
        epoch that it was saved in.

        Call it before each ``iter()``; without it every iterator gives the same.

        Args:
            epoch: From 0, the one that a new loader gives.

        Raises:
            TypeError: It is not an int, or the loader has a sampler of your own without
                a method ``set_epoch(epoch)``, which is called on a copy of it.
            ValueError: It is negative.
            OverflowError: The sampler's indices of that epoch exceed 64 bits.

        Example:
            >>> loader = gristmill.load(range(4), shuffle=True, seed=1, num_epochs=1)
            >>> for epoch in range(2):
            ...     loader.set_epoch(epoch)
            ...     print(list(loader))
            [1, 2, 3, 0]
            [0, 3, 1, 2]
        """
        check_integer("epoch", epoch)
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0, got {epoch}.")
        epoch = operator.index(epoch)
        compilation.in_epoch(self._program, epoch)  # It checks the epoch.
        self._epoch = epoch
        if self._passes is not None:
            self._passes.renew()

    def _watch_epochs(self, operations: list[Any]) -> None:
        """Warn from now on if a random epoch is repeated."""
        if compilation.changes_with_epoch(self._program, operations):
            self._passes = Passes(_REPEATED)

    def _count(self, iterator: Any) -> None:
        """Note that an iterator is at the beginning of an epoch."""
        if self._passes is not None:
            iterator._watch.opening = Opening(self._passes)
