"""Computes an output of an `IterDataset` again from the state before it."""

# mypy: disable-error-code="no-any-return"
# `build` returns Any.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import numpy.typing as npt

from gristmill._base.types import T
from gristmill._dataset.model.node import build

if TYPE_CHECKING:
    from gristmill._base.source_counts import SourceCount


class Replayable(Generic[T]):
    """A dataset whose outputs can be computed again; `parallel/replay.py` does it."""

    def consumed(
        self, state: Any, lengths: Mapping[str, Any] | None = None
    ) -> dict[str, SourceCount]:
        """Count what an iterator with a state has delivered, by source.

        Elements that were computed ahead do not count.  Nothing is read, unless the
        state does not determine what was delivered: filters and flat maps compute all
        earlier elements again; packing, windows and buckets only those of a group.  An
        element for which a map returned None, or that `on_error` left out, counts.

        A source has the name of its part of a mixture with names, else its own
        attribute ``name``, else its text.  Names that occur twice get the number of
        their source.

        Args:
            state: The result of `get_state` of an iterator over this chain.
            lengths: The tokens of each record of a source, ints of shape (n,), by the
                name of the source.  By default, those that `MapDataset.mix` got, or
                those of sources with a method ``lengths()``, such as
                `sources.MegatronDataSource`, or what an `IterDataset.mix` has counted.

        Returns:
            A `SourceCount` with ``elements``, ``tokens`` and ``epochs`` for the name
            of each source, in the order of the sources in the chain.

        Raises:
            TypeError: The records of a part of the chain are not known.
            ValueError: `lengths` does not fit the sources.
            StateMismatch: It is not a state of this chain.

        Example:
            >>> ds = gristmill.MapDataset.range(10).to_iter_dataset().batch(4)
            >>> iterator = iter(ds)
            >>> batch = next(iterator)
            >>> [count] = ds.consumed(iterator.get_state()).values()
            >>> count.elements, count.tokens, count.epochs
            (4, None, 0.4)
        """
        return build("IterDataset.consumed", self, state, lengths)

    def ids(self, state: Any) -> npt.NDArray[np.void]:
        """Return the ids of the records in the output after a state.

        The output is computed again in this process.  Elements of a batch or of a
        packed row have the ids of all their records, in the order of the elements.

        Args:
            state: The result of `get_state` of an iterator over this chain before the
                output.

        Returns:
            Shape (n,), with int64 fields

            - "source": the number of the source in the chain, from 0 in the order of
              its parts.  A dataset of a user's class counts as a source;
            - "key": the index passed to the source, and "epoch", its epoch;
            - "begin", "end": the tokens [begin, end) of the record in a packed row: the
              cells of its first feature.  Otherwise 0, and the record's length, or -1
              if that is not known.

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
