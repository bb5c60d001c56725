"""What elements look like, found without reading any."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gristmill import batching
from gristmill._hot import tree


@runtime_checkable
class ShapeDtypeStructProtocol(Protocol):
    """Anything with a shape and a dtype: an array, a `ShapeDtypeStruct`."""

    @property
    def shape(self) -> Any:
        """Its extents; None stands for one that is not known."""

    @property
    def dtype(self) -> Any:
        """Its NumPy dtype."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShapeDtypeStruct:
    """The shape and the dtype of an array that is not there.

    Args:
        shape: Its extents; None stands for one that is not known.
        dtype: Its NumPy dtype.
    """

    shape: Any = ()
    dtype: Any = np.float64


def get_element_spec(ds: Any) -> Any:
    """What the elements of a dataset look like; reads and computes none of them.

    Args:
        ds: A `MapDataset` or an `IterDataset`.

    Returns:
        An element with a `ShapeDtypeStruct` for each leaf.

    Raises:
        NotImplementedError: A dataset of the chain cannot tell, such as a source.
        ValueError: A transform has no method ``output_spec``.
    """
    return ds._element_spec


def spec_of_step(dataset: Any, transform: Any, name: str) -> Any:
    """The spec behind a step, which has it from the transform's ``output_spec``."""
    if not callable(getattr(transform, "output_spec", None)):
        raise ValueError(
            f"Cannot infer element spec for transform {name} because it does not"
            f" implement `output_spec` method. Implement `{name}.output_spec(self,"
            " input_spec: PyTree[ShapeDtypeStructProtocol]) ->"
            " PyTree[ShapeDtypeStructProtocol]` to enable element spec inference."
        )
    return transform.output_spec(dataset._parent._element_spec)


def spec_of_batch(
    spec: Any, size: int, drop_remainder: bool, batch_fn: Callable[..., Any] | None
) -> Any:
    """The spec of batches of elements of this spec."""
    function = batch_fn.func if isinstance(batch_fn, functools.partial) else batch_fn
    if callable(getattr(function, "output_spec", None)):
        return function.output_spec(spec, size, drop_remainder)  # type: ignore[union-attr]
    if function not in (None, batching.make_batch):
        raise NotImplementedError(
            "Element spec inference is not supported with custom batching functions"
            " that have no method output_spec(input_spec, batch_size, drop_remainder)."
        )
    rows = size if drop_remainder else None
    return tree.map_batch(
        lambda leaf: ShapeDtypeStruct((rows, *leaf[0].shape), leaf[0].dtype),
        [spec],
        batching.tree_rules(),
    )
