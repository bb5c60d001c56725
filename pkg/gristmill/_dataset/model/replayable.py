"""Computes an output of an `IterDataset` again from the state before it."""

# mypy: disable-error-code="no-any-return"
# `build` returns Any.

from __future__ import annotations

from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from gristmill._base.types import T
from gristmill._dataset.model.node import build


class Replayable(Generic[T]):
    """A dataset whose outputs can be computed again; `parallel/replay.py` does it."""

    def ids(self, state: Any) -> npt.NDArray[np.void]:
        """Return the ids of the records in the output after a state.

        The output is computed again in this process.  Elements of a batch or of a
        packed row have the ids of all their records, in the order of the elements.

        Args:
            state: The result of `get_state` of an iterator over this chain before the
                output.

        Returns:
            Shape (n,), with int64 fields "source" and "key": the number of the source
            in the chain, from 0 in the order of its parts, and the index passed to the
            source.  A dataset of a user's class counts as a source.  Ids of rows of
            `pack` also have "begin" and "end": the first cell of the record in the row,
            and the one after the last.

        Raises:
            StopIteration: There is no output after this state.
            TypeError: The chain begins with an iterable or a file that is not read by
                index, or the records of a node's elements are not known.

        Example:
            >>> ds = gristmill.MapDataset.range(100, 110).shuffle(seed=1)
            >>> ds = ds.to_iter_dataset().batch(3)
            >>> iterator = iter(ds)
            >>> state, batch = iterator.get_state(), next(iterator)
            >>> (batch == 100 + ds.ids(state)["key"]).all()
            np.True_
        """
        return build("IterDataset.ids", self, state)

    def replay(self, state: Any) -> T:
        """Compute again the output that an iterator with this state would return next.

        All code runs in this thread, where a debugger can follow it.  No iterator is
        advanced.  `worker_init_fn` is not called.

        Args:
            state: The result of `get_state` of an iterator over this chain.

        Returns:
            The output, a new object.

        Raises:
            StopIteration: There is no output after this state.

        Example:
            >>> ds = gristmill.MapDataset.range(5).to_iter_dataset().batch(2)
            >>> iterator = iter(ds)
            >>> _, state = next(iterator), iterator.get_state()
            >>> ds.replay(state).tolist()
            [2, 3]
        """
        return build("IterDataset.replay", self, state)
