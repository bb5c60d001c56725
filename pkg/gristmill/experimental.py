"""Names that Grain keeps in its experimental namespace."""

from __future__ import annotations

from gristmill._core import index_shuffle
from gristmill._dataset.apply import apply_transformations
from gristmill._dataset.concat_split import BOSHandling, ConcatThenSplitIterDataset
from gristmill._dataset.flat_map import FlatMapIterDataset, FlatMapMapDataset
from gristmill._dataset.iterator import get_next_index, set_next_index
from gristmill._dataset.multithread_prefetch import multithread_prefetch
from gristmill._dataset.options import DatasetOptions, ExecutionTrackingMode
from gristmill._dataset.pack_and_batch import PackAndBatchOperation
from gristmill._dataset.packing import BestFitPackIterDataset, FirstFitPackIterDataset
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
    "BOSHandling",
    "BestFitPackIterDataset",
    "ConcatThenSplitIterDataset",
    "DatasetOptions",
    "ExecutionTrackingMode",
    "FirstFitPackIterDataset",
    "FlatMapIterDataset",
    "FlatMapMapDataset",
    "FlatMapTransform",
    "MapWithIndexTransform",
    "PackAndBatchOperation",
    "RngPool",
    "ShapeDtypeStruct",
    "ShapeDtypeStructProtocol",
    "WithOptionsIterDataset",
    "apply_transformations",
    "get_element_spec",
    "get_next_index",
    "index_shuffle",
    "multithread_prefetch",
    "set_next_index",
]
