"""Leaves of elements that are computed when their batch is made.

The method ``defer`` of a transform returns such a leaf instead of the result of ``map``
or ``random_map``: for example, a picture that has not been decoded yet.  A whole batch
of leaves is computed at once, directly in the memory of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from gristmill._base.types import Alloc, S

# Methods that compute one element at once.  If a subclass overrides one of them, the
# inherited `defer` no longer matches it.
_EAGER_METHODS = ("map", "random_map", "decode")


class Deferred:
    """A leaf that is computed when its batch is made.

    A subclass implements `stack`.  This is not an ABC, because batches check the type
    of each leaf, and such checks of ABCs are slow.
    """

    __slots__ = ()

    def stack(
        self, column: list[Any], alloc: Alloc | None, threads: int
    ) -> npt.NDArray[Any]:
        """Return the batch of a column whose first leaf is this one.

        Args:
            column: B leaves, at least 1.
            alloc: Allocates the array, of shape (B, ...).  None: NumPy allocates it.
            threads: The maximum number of computing threads, including the caller.

        Raises:
            Exception: A leaf cannot be computed, or the leaves differ in kind.  The
                caller then makes the batch again from elements that are not deferred.
        """
        raise NotImplementedError


class _Failed(Deferred):
    """Replaces an element whose ``defer`` raised an exception."""

    __slots__ = ()

    def stack(
        self, column: list[Any], alloc: Alloc | None, threads: int
    ) -> npt.NDArray[Any]:
        raise ValueError("an element could not be deferred")


_FAILED = _Failed()


class DeferringCall:
    """A transform's ``defer`` as a step that does not raise.

    If ``defer`` fails, this returns a leaf whose `stack` fails.  The batch is then made
    again with the transform's eager method, which raises the original error for the
    right element.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, element: Any, *generator: Any) -> Any:
        """Return the element with a deferred leaf."""
        if element is _FAILED:
            return element
        try:
            return self.function(element, *generator)
        except Exception:
            return _FAILED

    def __reduce__(self) -> tuple[Any, ...]:
        return DeferringCall, (self.function,)


def deferring(transform: Any) -> DeferringCall | None:
    """Return the deferring step of a transform.

    Returns None if it has no ``defer``, or if a subclass overrides an eager method
    without overriding ``defer``.
    """
    for cls in type(transform).__mro__:
        if "defer" in vars(cls):
            return DeferringCall(transform.defer)
        if any(name in vars(cls) for name in _EAGER_METHODS):
            return None
    return None


def deferred_else_eager(deferred: Callable[[], S], eager: Callable[[], S]) -> S:
    """Return the result of `deferred`, or of `eager` if `deferred` fails.

    Args:
        deferred: Computes a batch from elements whose steps defer their work.
        eager: Computes the same batch without deferring.  It raises the exception of
            the element that fails.

    Raises:
        StopIteration: `deferred` raised it: there are no more elements.
    """
    try:
        return deferred()
    except StopIteration:
        raise
    except Exception:
        pass
    # Outside of the except clause, so that an exception raised by `eager` does not have
    # the one from `deferred` as its context.
    return eager()
