"""Types that several modules share, and protocols that a user may implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The element type of a class.  Programs may omit it.  T is for classes that only
    # return elements, so that a MapDataset[bool] is a MapDataset[int]; V is for others.
    T = TypeVar("T", covariant=True, default=Any)
    V = TypeVar("V", default=Any)
else:
    # typing_extensions is not a dependency, and Python 3.11's TypeVar has no default.
    from typing import TypeVar

    T = TypeVar("T", covariant=True)
    V = TypeVar("V")

S = TypeVar("S")
K = TypeVar("K")
D = TypeVar("D", bound=np.generic)
# The dtypes that tensors support.  Arrays of other dtypes are not converted.
N = TypeVar("N", bound=np.number[Any] | np.bool_)
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)

Int64Array: TypeAlias = npt.NDArray[np.int64]
# Indices of a dataset: int64, or Python's integers (dtype object) if one does not fit.
Indices: TypeAlias = npt.NDArray[Any]

# An array of any shape, for arguments.  npt.NDArray is for returned arrays.
Array: TypeAlias = np.ndarray[Any, np.dtype[D]]
# Several indices of a dataset, for arguments.
IndexList: TypeAlias = list[int] | Array[np.integer[Any]]

# Scalars that become arrays when elements are stacked.
Scalar: TypeAlias = complex | str | bytes | np.generic

# The containers that can make up an element: jax's pytrees ("jax"), or only lists,
# tuples and mappings ("plain").  Grain uses the latter if jax is not installed.
Rules: TypeAlias = Literal["jax", "plain"]

# Returns a C-contiguous, uninitialized array of the given shape and dtype.  The engine
# uses it to allocate batches in shared memory.
Alloc: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]

# Prepares a worker process.  The arguments are the worker's number and the number of
# workers.
WorkerInitFn: TypeAlias = Callable[[int, int], None]


class Maps(Protocol[In, Out]):
    """The protocol of `transforms.Map`, with the argument and result types."""

    def map(self, element: In, /) -> Out:
        """Return the transformed element."""


class MapsRandomly(Protocol[In, Out]):
    """The protocol of `transforms.RandomMap`, with the argument and result types."""

    def random_map(self, element: In, rng: np.random.Generator, /) -> Out:
        """Return the transformed element."""


class MapsWithIndex(Protocol[In, Out]):
    """The protocol of `transforms.MapWithIndex`, with the argument and result types."""

    def map_with_index(self, index: int, element: In, /) -> Out:
        """Return the transformed element."""


class MapsBlocks(Protocol[K, Out]):
    """The protocol of `transforms.BlockMap`, with the argument and result types."""

    block_size: int

    def block_map(self, elements: list[K], /) -> Sequence[Out]:
        """Return the transformed elements, in the same order."""


class Filters(Protocol[In]):
    """The protocol of `transforms.Filter`, with the argument type."""

    def filter(self, element: In, /) -> bool | np.bool_:
        """Return whether to keep the element."""


class Splits(Protocol[In, Out]):
    """The protocol of `transforms.FlatMap`, with the argument and result types."""

    @property
    def max_fan_out(self) -> int:
        """The maximum number of elements that one element is split into."""

    def flat_map(self, element: In, /) -> Iterable[Out]:
        """Return the elements that one element is split into."""


AnyMap: TypeAlias = Maps[In, Out] | Callable[[In], Out]
AnyBlockMap: TypeAlias = MapsBlocks[K, Out] | Callable[[list[K]], Sequence[Out]]
AnyRandomMap: TypeAlias = (
    # Quoted, since numpy.random is slow to import.
    MapsRandomly[In, Out] | Callable[[In, "np.random.Generator"], Out]
)
AnyMapWithIndex: TypeAlias = MapsWithIndex[In, Out] | Callable[[int, In], Out]
AnyFilter: TypeAlias = Filters[In] | Callable[[In], bool | np.bool_]
