"""Types that several modules share, and what a user may implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The element of a class.  A program may leave it out; where the class only gives
    # elements it is T, so that a MapDataset[bool] is a MapDataset[int], else V.
    T = TypeVar("T", covariant=True, default=Any)
    V = TypeVar("V", default=Any)
else:
    # typing_extensions is no dependency, and Python 3.11's TypeVar has no default.
    from typing import TypeVar

    T = TypeVar("T", covariant=True)
    V = TypeVar("V")

S = TypeVar("S")
K = TypeVar("K")
D = TypeVar("D", bound=np.generic)
# Of what tensors hold; other arrays stay arrays.
N = TypeVar("N", bound=np.number[Any] | np.bool_)
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)

Int64Array: TypeAlias = npt.NDArray[np.int64]
# Indices of a dataset: int64, or Python's integers (dtype object) if one does not fit.
Indices: TypeAlias = npt.NDArray[Any]

# An array of any shape as an argument; npt.NDArray stands for those that are returned.
Array: TypeAlias = np.ndarray[Any, np.dtype[D]]
# Several indices of a dataset as an argument.
IndexList: TypeAlias = list[int] | Array[np.integer[Any]]

# What becomes an array where elements are stacked.
Scalar: TypeAlias = complex | str | bytes | np.generic

# Which containers an element is made of: jax's pytrees, or only list, tuple and
# mappings, which is what Grain does where jax is not installed.
Rules: TypeAlias = Literal["jax", "plain"]

# Returns a C-contiguous array of that shape and dtype, its bytes undefined.  The
# engine allocates batches inside shared memory with it.
Alloc: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]

# Prepares a worker process: it is called with the worker's number and their number.
WorkerInitFn: TypeAlias = Callable[[int, int], None]


class Maps(Protocol[In, Out]):
    """A `transforms.Map`, by what its own method takes and returns."""

    def map(self, element: In, /) -> Out:
        """Return what becomes of one element."""


class MapsRandomly(Protocol[In, Out]):
    """A `transforms.RandomMap`, by what its own method takes and returns."""

    def random_map(self, element: In, rng: np.random.Generator, /) -> Out:
        """Return what becomes of one element."""


class MapsWithIndex(Protocol[In, Out]):
    """A `transforms.MapWithIndex`, by what its own method takes and returns."""

    def map_with_index(self, index: int, element: In, /) -> Out:
        """Return what becomes of one element."""


class MapsBlocks(Protocol[K, Out]):
    """A `transforms.BlockMap`, by what its own method takes and returns."""

    block_size: int

    def block_map(self, elements: list[K], /) -> Sequence[Out]:
        """Return what becomes of each of some elements."""


class Filters(Protocol[In]):
    """A `transforms.Filter`, by what its own method takes."""

    def filter(self, element: In, /) -> bool | np.bool_:
        """Return whether to keep the element."""


class Splits(Protocol[In, Out]):
    """A `transforms.FlatMap`, by what its own method takes and returns."""

    @property
    def max_fan_out(self) -> int:
        """The most elements that one may become."""

    def flat_map(self, element: In, /) -> Iterable[Out]:
        """Return the elements that one becomes."""


AnyMap: TypeAlias = Maps[In, Out] | Callable[[In], Out]
AnyBlockMap: TypeAlias = MapsBlocks[K, Out] | Callable[[list[K]], Sequence[Out]]
AnyRandomMap: TypeAlias = (
    # As a text, since numpy.random is slow to import.
    MapsRandomly[In, Out] | Callable[[In, "np.random.Generator"], Out]
)
AnyMapWithIndex: TypeAlias = MapsWithIndex[In, Out] | Callable[[int, In], Out]
AnyFilter: TypeAlias = Filters[In] | Callable[[In], bool | np.bool_]
