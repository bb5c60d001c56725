"""The names of Grain's experimental namespace."""

from __future__ import annotations

from gristmill._base.lazy_names import public_names
from gristmill._core import index_shuffle
from gristmill._dataset.model.iterator import get_next_index, set_next_index
from gristmill._dataset.model.options import DatasetOptions, ExecutionTrackingMode
from gristmill._dataset.model.spec import (
    ShapeDtypeStruct,
    ShapeDtypeStructProtocol,
    get_element_spec,
)
from gristmill._dataset.nodes.apply import apply_transformations
from gristmill._dataset.nodes.batch import batch_and_pad
from gristmill._dataset.nodes.checkpoint_check import (
    assert_equal_output_after_checkpoint,
)
from gristmill._dataset.nodes.concat_split import (
    BOSHandling,
    ConcatThenSplitIterDataset,
)
from gristmill._dataset.nodes.elastic import ElasticIterator
from gristmill._dataset.nodes.flat_map import FlatMapIterDataset, FlatMapMapDataset
from gristmill._dataset.nodes.interleave import InterleaveIterDataset
from gristmill._dataset.nodes.map import RngPool
from gristmill._dataset.nodes.packing import (
    BestFitPackIterDataset,
    FirstFitPackIterDataset,
    PackAndBatchOperation,
)
from gristmill._dataset.nodes.parquet import ParquetIterDataset
from gristmill._dataset.nodes.rebatch import RebatchIterDataset
from gristmill._dataset.nodes.repeat import (
    CacheIterDataset,
    LimitIterDataset,
    RepeatIterDataset,
)
from gristmill._dataset.nodes.tf_record import TFRecordIterDataset
from gristmill._dataset.nodes.thread_prefetch import (
    ThreadPrefetchDatasetIterator,
    ThreadPrefetchIterDataset,
)
from gristmill._dataset.nodes.window_shuffle import (
    WindowShuffleIterDataset,
    WindowShuffleMapDataset,
)
from gristmill._dataset.nodes.with_options import WithOptionsIterDataset
from gristmill._dataset.nodes.zip import ZipIterDataset, ZipMapDataset
from gristmill._dataset.parallel.device_put import device_put
from gristmill._dataset.parallel.multithread import multithread_prefetch
from gristmill._dataset.parallel.performance import (
    PerformanceConfig,
    pick_performance_config,
)
from gristmill.transforms import FlatMap as FlatMapTransform
from gristmill.transforms import MapWithIndex as MapWithIndexTransform

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

# The module name in pickles.
RngPool.__module__ = __name__


def __dir__() -> list[str]:
    return public_names(__all__)
