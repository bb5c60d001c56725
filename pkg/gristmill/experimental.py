"""Names that Grain keeps in its experimental namespace."""

from __future__ import annotations

from gristmill._core import index_shuffle
from gristmill._dataset.apply import apply_transformations
from gristmill._dataset.flat_map import FlatMapIterDataset, FlatMapMapDataset
from gristmill._dataset.iterator import get_next_index, set_next_index
from gristmill._dataset.options import DatasetOptions, ExecutionTrackingMode
from gristmill._dataset.spec import (
    ShapeDtypeStruct,
    ShapeDtypeStructProtocol,
    get_element_spec,
)
from gristmill._dataset.with_options import WithOptionsIterDataset
from gristmill._rng_pool import RngPool
from gristmill.transforms import FlatMap as FlatMapTransform
from gristmill.transforms import MapWithIndex as MapWithIndexTransform

__all__ = [
    "DatasetOptions",
    "ExecutionTrackingMode",
    "FlatMapIterDataset",
    "FlatMapMapDataset",
    "FlatMapTransform",
    "MapWithIndexTransform",
    "RngPool",
    "ShapeDtypeStruct",
    "ShapeDtypeStructProtocol",
    "WithOptionsIterDataset",
    "apply_transformations",
    "get_element_spec",
    "get_next_index",
    "index_shuffle",
    "set_next_index",
]
