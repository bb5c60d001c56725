"""The kinds of transforms: the classes that users subclass, and `Batch`."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, Union

import numpy as np


class AnyTransform:
    """What all transforms are, so that type checkers know a list of several kinds."""


class Map(AnyTransform, abc.ABC):
    """Turn each element into one other.

    Example:
        >>> class Double(Map):
        ...     def map(self, element):
        ...         return 2 * element
        >>> Double().map(3)
        6
    """

    @abc.abstractmethod
    def map(self, element: Any, /) -> Any:
        """Return what becomes of one element."""


class BlockMap(AnyTransform, abc.ABC):
    """Turn each element into one other, several at a time.

    For functions that take many elements faster than one after another, such as a
    tokenizer's ``encode_batch``.  How many come together is not promised: what becomes
    of an element must not depend on the others.  Order, positions, states and errors
    are those of a `Map`.

    Attributes:
        block_size: The most elements that come together, at least 1; 64 unless a
            subclass or an instance says otherwise.

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
        """Return what becomes of each of some elements: as many, in their order.

        Where it raises, it is called again with each element alone, so that the error
        is that of one element.
        """


class RandomMap(AnyTransform, abc.ABC):
    """Turn each element into one other, with random numbers of its own.

    The numbers depend on the sampler's seed and the record's index, never on which
    process computes them or when.

    Example:
        >>> class Jitter(RandomMap):
        ...     def random_map(self, element, rng):
        ...         return element + rng.uniform()
    """

    @abc.abstractmethod
    def random_map(self, element: Any, rng: np.random.Generator, /) -> Any:
        """Return what becomes of one element; draw from `rng` and do not keep it."""


class MapWithIndex(AnyTransform, abc.ABC):
    """Turn each element into one other, given its index.

    Example:
        >>> class Number(MapWithIndex):
        ...     def map_with_index(self, index, element):
        ...         return {"index": index, "element": element}
    """

    @abc.abstractmethod
    def map_with_index(self, index: int, element: Any, /) -> Any:
        """Return what becomes of the element at `index`."""


class TfRandomMap(AnyTransform, abc.ABC):
    """Turn each element into one other, under the method name that TF code uses.

    Example:
        >>> class Jitter(TfRandomMap):
        ...     def np_random_map(self, element, rng):
        ...         return element + rng.uniform()
        >>> 3 <= Jitter().np_random_map(3, np.random.default_rng(0)) < 4
        True
    """

    @abc.abstractmethod
    def np_random_map(self, element: Any, rng: np.random.Generator, /) -> Any:
        """Return what becomes of one element; draw from `rng` and do not keep it."""


class Filter(AnyTransform, abc.ABC):
    """Keep some elements and drop the others.

    Example:
        >>> class Even(Filter):
        ...     def filter(self, element):
        ...         return element % 2 == 0
    """

    @abc.abstractmethod
    def filter(self, element: Any, /) -> bool | np.bool_:
        """Return whether to keep the element."""


class FlatMap(AnyTransform, abc.ABC):
    """Turn each element into any number of others.

    Attributes:
        max_fan_out: The most elements that one may become. Results are numbered
            ``index * max_fan_out + k``, so keep it close to what really occurs.

    Example:
        >>> class Words(FlatMap):
        ...     max_fan_out = 8
        ...     def flat_map(self, element):
        ...         return element.split()
    """

    max_fan_out: int

    @abc.abstractmethod
    def flat_map(self, element: Any, /) -> Iterable[Any]:
        """Return the elements that one becomes, in order."""


@dataclasses.dataclass(frozen=True)
class Batch(AnyTransform):
    """Combine consecutive elements into one.

    Args:
        batch_size: Elements per batch, ``B``, at least 1.
        drop_remainder: Whether a last batch of fewer elements is dropped.
        batch_fn: Makes a batch of a list of up to ``B`` elements. None stacks:
            leaves of shape ``S`` and dtype ``D`` become one of ``(B, *S)`` and ``D``.

    Example:
        >>> Batch(batch_size=32)
        Batch(batch_size=32, drop_remainder=False, batch_fn=None)
    """

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[list[Any]], Any] | None = None


# Typing's spelling, because it is what isinstance and Grain's own users see.
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
    """Say which of several data sets each index of their mixture reads.

    Instances have no state, are picklable and answer the same in every process.

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
        """Return the data set of an index and the index within it.

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
