"""Makes an IterDataset of several datasets, or of an iterable."""

# mypy: disable-error-code="no-any-return"
# `build` gives what is registered, of any class.

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gristmill._base.types import S
from gristmill._dataset.model.node import build

if TYPE_CHECKING:
    from gristmill._dataset.model.iter_dataset import IterDataset


class IterDatasetMeta(abc.ABCMeta):
    """Has the methods that make an `IterDataset` of other objects."""

    def from_iterable(
        cls,
        iterable: Iterable[S] | Callable[..., Iterable[S]],
        *,
        replay: bool = False,
    ) -> IterDataset[S]:
        """Make a dataset of a generator function, or of anything with an order.

        Each iterator over the dataset begins a new iteration.  A state has what
        `state_dict` of the iterable and of its iterator return, as in torchdata and in
        Hugging Face's datasets; `get_state` of either will do.  An iterable with a
        state is copied for each iterator.  `at_epoch` calls the iterable's `set_epoch`,
        if it has that method.

        Workers need a share each: a function with the parameters `shard_index` and
        `shard_count` returns one, an iterable may have ``shard(num_shards, index)``.

        Args:
            iterable: An iterable that can be iterated over again, or a function that
                returns a new iterable, such as a generator function.
            replay: Whether restoring a state reads the earlier elements again, and
                uses no state of the iterable.  Each iteration must then give the same
                elements.

        Raises:
            TypeError: The iterable can be iterated over only once, such as a generator,
                or the function needs other arguments.  `get_state` raises it if there
                is no state and no `replay`.

        Example:
            >>> def count(shard_index, shard_count):
            ...     yield from range(shard_index, 6, shard_count)
            >>> ds = gristmill.IterDataset.from_iterable(count, replay=True)
            >>> [batch.tolist() for batch in ds.batch(4)]
            [[0, 1, 2, 3], [4, 5]]
        """
        return build("IterDataset.from_iterable", iterable, replay)

    def mix(
        cls,
        datasets: Sequence[IterDataset[S]] | Mapping[str, IterDataset[S]],
        weights: Sequence[float] | Mapping[str, float] | None = None,
    ) -> IterDataset[S]:
        """A dataset that takes from several in turn, in proportion to weights.

        It ends when the one whose turn it is has ended.

        Args:
            datasets: The parts, or a mapping of names to them: a state by name can be
                restored after parts or weights have changed.
            weights: As many positive numbers, with the same names; None for equal ones.
        """
        return build("IterDataset.mix", datasets, weights)

    def zip(
        cls, datasets: Sequence[IterDataset[Any]], *, strict: bool = True
    ) -> IterDataset[tuple[Any, ...]]:
        """A dataset of tuples, of one element of each part.

        Args:
            datasets: The parts, at least 1.
            strict: Whether parts that do not end together are a ValueError; else it
                ends with the shortest.
        """
        return build("IterDataset.zip", datasets, strict=strict)
