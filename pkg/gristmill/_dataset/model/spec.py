"""Infers the structure, shapes and dtypes of elements without reading any."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class ShapeDtypeStructProtocol(Protocol):
    """Anything with a shape and a dtype: an array, a `ShapeDtypeStruct`.

    Example:
        >>> isinstance(np.zeros(3), ShapeDtypeStructProtocol)
        True
    """

    @property
    def shape(self) -> Any:
        """The extents; None for an unknown one."""

    @property
    def dtype(self) -> Any:
        """The NumPy dtype."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShapeDtypeStruct:
    """The shape and dtype of an array, without its data.

    Args:
        shape: The extents; None for an unknown one.
        dtype: The NumPy dtype.

    Example:
        >>> class Half(gristmill.transforms.Map):
        ...     def map(self, element):
        ...         return element / 2
        ...     def output_spec(self, spec):
        ...         return ShapeDtypeStruct(spec.shape, np.float64)
        >>> get_element_spec(gristmill.MapDataset.range(6).map(Half())).dtype
        <class 'numpy.float64'>
    """

    shape: Any = ()
    dtype: Any = np.float64


def get_element_spec(ds: Any) -> Any:
    """Return the spec of a dataset's elements, without reading or computing any.

    Args:
        ds: A `MapDataset` or an `IterDataset`.

    Returns:
        An element with a `ShapeDtypeStruct` for each leaf.

    Raises:
        NotImplementedError: A dataset of the chain, such as a source, has no spec.
        ValueError: A transform has no method ``output_spec``.

    Example:
        >>> get_element_spec(gristmill.MapDataset.range(6).batch(2))
        ShapeDtypeStruct(shape=(None,), dtype=<class 'numpy.int64'>)
    """
    return ds._element_spec
