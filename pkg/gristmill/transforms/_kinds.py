"""The kinds of transforms: the classes that users subclass, and `Batch`."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, Union

import numpy as np


class AnyTransform:
    """The base class of all transforms, for type checkers of mixed lists."""


class Map(AnyTransform, abc.ABC):
    """Turn each element into another one.

    Example:
        >>> class Double(Map):
        ...     def map(self, element):
        ...         return 2 * element
        >>> Double().map(3)
        6
    """

    @abc.abstractmethod
    def map(self, element: Any, /) -> Any:
        """Return the new element.

        Args:
            element: An element, which may be changed.

        Returns:
            The new element.
        """


class BlockMap(AnyTransform, abc.ABC):
    """Turn each element into another one, several at a time.

    For functions that process many elements faster together than one by one, such as a
    tokenizer's ``encode_batch``.  The number of elements in a call may vary, and the
    result for an element must not depend on the others.  Order, positions, states and
    errors are the same as for a `Map`.

    Attributes:
        block_size: The maximum number of elements in a call, at least 1; 64 by default.

    Example:
        >>> class Lengths(BlockMap):
        ...     block_size = 2
        ...     def block_map(self, elements):
        ...         return [len(element) for element in elements]
        >>> Lengths().block_map(["a", "bcd"])
        [1, 3]
    """

    block_size: int = 64

    @abc.abstractmethod
    def block_map(self, elements: list[Any], /) -> Sequence[Any]:
        """Return one new element for each element, in the same order.

        If it raises, it is called again with each element alone, to attribute the
        error to one element.

        Args:
            elements: From 1 to `block_size` elements, which may be changed.

        Returns:
            The new elements, as many as `elements`.
        """


class RandomMap(AnyTransform, abc.ABC):
    """Turn each element into another one, with its own random numbers.

    The numbers depend on the sampler's seed and the record's index, never on which
    process computes them or when.

    Example:
        >>> class Jitter(RandomMap):
        ...     def random_map(self, element, rng):
        ...         return element + rng.uniform()
    """

    @abc.abstractmethod
    def random_map(self, element: Any, rng: np.random.Generator, /) -> Any:
        """Return the new element; draw from `rng`, and do not keep it.

        Args:
            element: An element, which may be changed.
            rng: The generator of this element's random numbers.

        Returns:
            The new element.
        """


class MapWithIndex(AnyTransform, abc.ABC):
    """Turn each element into another one, using its index.

    Example:
        >>> class Number(MapWithIndex):
        ...     def map_with_index(self, index, element):
        ...         return {"index": index, "element": element}
    """

    @abc.abstractmethod
    def map_with_index(self, index: int, element: Any, /) -> Any:
        """Return the new element for the element at `index`.

        Args:
            index: The index of the element, at least 0.
            element: An element, which may be changed.

        Returns:
            The new element.
        """


class TfRandomMap(AnyTransform, abc.ABC):
    """Turn each element into another one, under the method name that TF code uses.

    Example:
        >>> class Jitter(TfRandomMap):
        ...     def np_random_map(self, element, rng):
        ...         return element + rng.uniform()
        >>> 3 <= Jitter().np_random_map(3, np.random.default_rng(0)) < 4
        True
    """

    @abc.abstractmethod
    def np_random_map(self, element: Any, rng: np.random.Generator, /) -> Any:
        """Return the new element; draw from `rng`, and do not keep it.

        Args:
            element: An element, which may be changed.
            rng: The generator of this element's random numbers.

        Returns:
            The new element.
        """


class Filter(AnyTransform, abc.ABC):
    """Keep some elements and drop the others.

    Example:
        >>> class Even(Filter):
        ...     def filter(self, element):
        ...         return element % 2 == 0
    """

    @abc.abstractmethod
    def filter(self, element: Any, /) -> bool | np.bool_:
        """Return whether to keep the element.

        Args:
            element: An element.

        Returns:
            True to keep it, False to drop it.
        """


class FlatMap(AnyTransform, abc.ABC):
    """Turn each element into any number of new elements.

    Attributes:
        max_fan_out: The maximum number of new elements per element. Results are
            numbered ``index * max_fan_out + k``, so keep it close to the actual
            maximum.

    Example:
        >>> class Words(FlatMap):
        ...     max_fan_out = 8
        ...     def flat_map(self, element):
        ...         return element.split()
    """

    max_fan_out: int

    @abc.abstractmethod
    def flat_map(self, element: Any, /) -> Iterable[Any]:
        """Return the new elements, in order.

        Args:
            element: An element, which may be changed.

        Returns:
            At most `max_fan_out` new elements.
        """


@dataclasses.dataclass(frozen=True)
class Batch(AnyTransform):
    """Combine consecutive elements into one.

    Args:
        batch_size: Elements per batch, ``B``, at least 1.
        drop_remainder: Whether a last batch of fewer elements is dropped.
        batch_fn: Makes a batch from a list of up to ``B`` elements. None stacks leaves:
            shape ``S`` and dtype ``D`` become shape ``(B, *S)`` and dtype ``D``.

    Example:
        >>> Batch(batch_size=32)
        Batch(batch_size=32, drop_remainder=False, batch_fn=None)
    """

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[list[Any]], Any] | None = None


# typing.Union, because isinstance and Grain's own users see it.
Transformation: TypeAlias = Union[  # noqa: UP007
    Batch,
    Map,
    RandomMap,
    TfRandomMap,
    Filter,
    FlatMap,
    MapWithIndex,
]
"""The type of a transform that a loader takes."""

Transformations: TypeAlias = Sequence[Transformation]
"""The transforms that a loader applies to each element, in this order."""


class DatasetSelectionMap(abc.ABC):
    """Select the data set that each index of a mixture reads.

    Instances are stateless and picklable, and return the same in every process.

    Example:
        >>> class TwoToOne(DatasetSelectionMap):
        ...     def __len__(self):
        ...         return 6
        ...     def __getitem__(self, index):
        ...         third, place = divmod(index, 3)
        ...         return (1, third) if place == 2 else (0, 2 * third + place)
        >>> [TwoToOne()[i] for i in range(3)]
        [(0, 0), (0, 1), (1, 0)]
    """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the length of one epoch of the mixture."""

    @abc.abstractmethod
    def __getitem__(self, index: int) -> tuple[int, int]:
        """Return the number of an index's data set, and the index within it.

        Indices past the length belong to further epochs and are valid.
        """


for _kind in (
    AnyTransform,
    Map,
    BlockMap,
    RandomMap,
    MapWithIndex,
    TfRandomMap,
    Filter,
    FlatMap,
    Batch,
    DatasetSelectionMap,
):
    _kind.__module__ = __name__.rpartition(".")[0]  # The name in pickles.
