"""Names that Grain keeps in its experimental namespace, imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill._core import index_shuffle
from gristmill._listing import lazily, listed
from gristmill._rng_pool import RngPool
from gristmill.transforms import FlatMap as FlatMapTransform
from gristmill.transforms import MapWithIndex as MapWithIndexTransform

if TYPE_CHECKING:
    from gristmill._dataset.apply import apply_transformations
    from gristmill._dataset.cache import CacheIterDataset
    from gristmill._dataset.checkpoint_check import assert_equal_output_after_checkpoint
    from gristmill._dataset.concat_split import BOSHandling, ConcatThenSplitIterDataset
    from gristmill._dataset.device_put import device_put
    from gristmill._dataset.elastic import ElasticIterator
    from gristmill._dataset.flat_map import FlatMapIterDataset, FlatMapMapDataset
    from gristmill._dataset.interleave import InterleaveIterDataset
    from gristmill._dataset.iterator import get_next_index, set_next_index
    from gristmill._dataset.limit import LimitIterDataset
    from gristmill._dataset.multithread import multithread_prefetch
    from gristmill._dataset.options import DatasetOptions, ExecutionTrackingMode
    from gristmill._dataset.pack_and_batch import PackAndBatchOperation
    from gristmill._dataset.packing import (
        BestFitPackIterDataset,
        FirstFitPackIterDataset,
    )
    from gristmill._dataset.padding import batch_and_pad
    from gristmill._dataset.parquet import ParquetIterDataset
    from gristmill._dataset.performance import (
        PerformanceConfig,
        pick_performance_config,
    )
    from gristmill._dataset.rebatch import RebatchIterDataset
    from gristmill._dataset.repeat import RepeatIterDataset
    from gristmill._dataset.spec import (
        ShapeDtypeStruct,
        ShapeDtypeStructProtocol,
        get_element_spec,
    )
    from gristmill._dataset.tf_record import TFRecordIterDataset
    from gristmill._dataset.thread_prefetch import (
        ThreadPrefetchDatasetIterator,
        ThreadPrefetchIterDataset,
    )
    from gristmill._dataset.window_shuffle import (
        WindowShuffleIterDataset,
        WindowShuffleMapDataset,
    )
    from gristmill._dataset.with_options import WithOptionsIterDataset
    from gristmill._dataset.zip import ZipIterDataset, ZipMapDataset

__all__ = [
    "BOSHandling",
    "BestFitPackIterDataset",
    "CacheIterDataset",
    "ConcatThenSplitIterDataset",
    "DatasetOptions",
    "ElasticIterator",
    "ExecutionTrackingMode",
    "FirstFitPackIterDataset",
    "FlatMapIterDataset",
    "FlatMapMapDataset",
    "FlatMapTransform",
    "InterleaveIterDataset",
    "LimitIterDataset",
    "MapWithIndexTransform",
    "PackAndBatchOperation",
    "ParquetIterDataset",
    "PerformanceConfig",
    "RebatchIterDataset",
    "RepeatIterDataset",
    "RngPool",
    "ShapeDtypeStruct",
    "ShapeDtypeStructProtocol",
    "TFRecordIterDataset",
    "ThreadPrefetchDatasetIterator",
    "ThreadPrefetchIterDataset",
    "WindowShuffleIterDataset",
    "WindowShuffleMapDataset",
    "WithOptionsIterDataset",
    "ZipIterDataset",
    "ZipMapDataset",
    "apply_transformations",
    "assert_equal_output_after_checkpoint",
    "batch_and_pad",
    "device_put",
    "get_element_spec",
    "get_next_index",
    "index_shuffle",
    "multithread_prefetch",
    "pick_performance_config",
    "set_next_index",
]

# The modules in gristmill._dataset that have them.
_HOMES = {
    "_dataset.apply": "apply_transformations",
    "_dataset.cache": "CacheIterDataset",
    "_dataset.checkpoint_check": "assert_equal_output_after_checkpoint",
    "_dataset.concat_split": "BOSHandling ConcatThenSplitIterDataset",
    "_dataset.device_put": "device_put",
    "_dataset.elastic": "ElasticIterator",
    "_dataset.flat_map": "FlatMapIterDataset FlatMapMapDataset",
    "_dataset.interleave": "InterleaveIterDataset",
    "_dataset.iterator": "get_next_index set_next_index",
    "_dataset.limit": "LimitIterDataset",
    "_dataset.multithread": "multithread_prefetch",
    "_dataset.options": "DatasetOptions ExecutionTrackingMode",
    "_dataset.pack_and_batch": "PackAndBatchOperation",
    "_dataset.packing": "BestFitPackIterDataset FirstFitPackIterDataset",
    "_dataset.padding": "batch_and_pad",
    "_dataset.parquet": "ParquetIterDataset",
    "_dataset.performance": "PerformanceConfig pick_performance_config",
    "_dataset.rebatch": "RebatchIterDataset",
    "_dataset.repeat": "RepeatIterDataset",
    "_dataset.spec": "ShapeDtypeStruct ShapeDtypeStructProtocol get_element_spec",
    "_dataset.tf_record": "TFRecordIterDataset",
    "_dataset.thread_prefetch": "ThreadPrefetchDatasetIterator"
    " ThreadPrefetchIterDataset",
    "_dataset.window_shuffle": "WindowShuffleIterDataset WindowShuffleMapDataset",
    "_dataset.with_options": "WithOptionsIterDataset",
    "_dataset.zip": "ZipIterDataset ZipMapDataset",
}


# Type checkers must not see it: they would accept every name.
if not TYPE_CHECKING:
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return listed(__all__)
