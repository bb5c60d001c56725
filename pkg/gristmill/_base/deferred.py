"""Leaves of elements that are computed where their batch is made.

A transform with a method ``defer`` can put one in the place of what its ``map`` or
``random_map`` would return: a picture that is to be decoded, say.  A whole batch of
them is computed at once, in the memory that it is to lie in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from gristmill._base.types import Alloc, S

# What a transform does to one element, or what others of its methods call for that.
_EAGER = ("map", "random_map", "decode")


class Deferred:
    """A leaf that is computed where its batch is made.

    A subclass implements `stack`.  This is not an ABC, because batches check the type
    of each leaf, and such checks of ABCs are slow.
    """

    __slots__ = ()

    def stack(
        self, column: list[Any], alloc: Alloc | None, threads: int
    ) -> npt.NDArray[Any]:
        """Return the batch of a column, which begins with this leaf.

        Args:
            column: B leaves, at least 1.
            alloc: Makes the array, of shape (B, ...).  None leaves it to NumPy.
            threads: The most that compute, the caller among them.

        Raises:
            Exception: One of them cannot be computed, or they are of several kinds.
                The batch is then made again of elements without such leaves.
        """
        raise NotImplementedError


class _Failed(Deferred):
    """Stands for an element of which the deferring method raised something."""

    __slots__ = ()

    def stack(
        self, column: list[Any], alloc: Alloc | None, threads: int
    ) -> npt.NDArray[Any]:
        raise ValueError("an element could not be deferred")


_FAILED = _Failed()


class DeferringCall:
    """A transform's ``defer``, as a step that does not raise.

    What stands for an element that fails makes its batch fail, which is then made again
    by the transform itself: that raises the error in its place.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, element: Any, *generator: Any) -> Any:
        """The element with a deferred leaf."""
        if element is _FAILED:
            return element
        try:
            return self.function(element, *generator)
        except Exception:
            return _FAILED

    def __reduce__(self) -> tuple[Any, ...]:
        return DeferringCall, (self.function,)


def deferring(transform: Any) -> DeferringCall | None:
    """What defers a transform; None where it does not, or a subclass does otherwise."""
    for cls in type(transform).__mro__:
        if "defer" in vars(cls):
            return DeferringCall(transform.defer)
        if any(name in vars(cls) for name in _EAGER):
            return None
    return None


def deferred_else_eager(deferred: Callable[[], S], eager: Callable[[], S]) -> S:
    """Return what `deferred` makes of elements whose steps defer their work.

    If it fails, return what `eager` makes of the same elements without deferring,
    which raises the exception of the element that is to blame.  A StopIteration of
    `deferred` is raised: there are no more elements.
    """
    try:
        return deferred()
    except StopIteration:
        raise
    except Exception:
        pass
    # Not above, where the exception would be the context of one raised here.
    return eager()
