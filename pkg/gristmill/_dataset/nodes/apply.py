"""Applies transforms to a dataset of either kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, overload

from gristmill import transforms
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import builds
from gristmill._dataset.nodes import flat_map
from gristmill._dataset.nodes.bucket import BucketIterDataset
from gristmill._dataset.nodes.map import METHODS

Transforms: TypeAlias = transforms.AnyTransform | Sequence[transforms.AnyTransform]


@overload
def apply_transformations(
    ds: MapDataset[Any], transformations: Transforms
) -> MapDataset[Any]: ...


@overload
def apply_transformations(
    ds: IterDataset[Any], transformations: Transforms
) -> IterDataset[Any]: ...


@builds("MapDataset.apply", "IterDataset.apply")
def apply_transformations(ds: Any, transformations: Any) -> Any:
    """Apply transforms to a dataset, in this order.

    Args:
        ds: A `MapDataset` or an `IterDataset`.
        transformations: One transform, or a sequence of them.

    Returns:
        A dataset of the same kind.

    Raises:
        NotImplementedError: Datasets do not support one of the transforms.
        TypeError: A `BucketBatch` is applied to a `MapDataset`.

    Example:
        >>> ds = gristmill.MapDataset.range(5)
        >>> ds = apply_transformations(ds, [gristmill.transforms.Batch(2)])
        >>> [batch.tolist() for batch in ds]
        [[0, 1], [2, 3], [4]]
    """
    if not isinstance(transformations, Sequence):
        transformations = (transformations,)
    for transform in transformations:
        ds = _apply(ds, transform)
    return ds


def _apply(dataset: Any, transform: Any) -> Any:
    match transform:
        case transforms.Batch(size, drop_remainder, batch_fn):
            return dataset.batch(size, drop_remainder=drop_remainder, batch_fn=batch_fn)
        case transforms.FlatMap():
            if isinstance(dataset, MapDataset):
                return flat_map.FlatMapMapDataset(dataset, transform)
            return flat_map.FlatMapIterDataset(dataset, transform)
        case transforms.BucketBatch() if isinstance(dataset, MapDataset):
            raise TypeError(
                "BucketBatch needs an IterDataset, got a MapDataset. Call"
                " to_iter_dataset() before it."
            )
        case transforms.BucketBatch():
            return BucketIterDataset(dataset, transform)
    for kind, method in METHODS.items():
        if isinstance(transform, kind):
            return getattr(dataset, method)(transform)
    raise NotImplementedError(
        f"Transformation type: {transform} is not supported. Pass a Batch, Map,"
        " RandomMap, MapWithIndex, FlatMap or Filter; a function goes to ds.map()."
    )
