"""Imports that public projects use, by version of Grain: MaxText, axlearn..."""

# Grain's names exist only after install().
# ruff: noqa: E402, I001, F401, F811
import sys

import gristmill.drop_in

gristmill.drop_in.install()
import grain._src.core.constants as constants
import grain._src.python.testing.experimental as test_util
from grain._src.core import constants, sharding, transforms, tree, tree_lib
from grain._src.core.config import config
from grain._src.core.sharding import ShardByJaxProcess, even_split
from grain._src.core.transforms import Batch, FlatMap, FlatMapTransform
from grain._src.python import data_loader, data_sources, options, record, samplers
from grain._src.python import shared_memory_array
from grain._src.python.checkpoint_handlers import CheckpointHandler
from grain._src.python.data_loader import (
    DataLoader,
    DataLoaderIterator,
    _determine_worker_count,
)
from grain._src.python.data_sources import ArrayRecordDataSource, SupportsIndex
from grain._src.python.dataset import base, dataset, stats, elastic_iterator
from grain._src.python.dataset.dataset import DatasetIterator
from grain._src.python.dataset.sources.parquet_dataset import ParquetIterDataset
from grain._src.python.dataset.sources.tfrecord_dataset import (
    TFRecordIterDataset,
    _TFRecordDatasetIterator,
    _TFRecordReader,
)
from grain._src.python.dataset.transformations import (
    batch,
    filter,
    flatmap,
    interleave,
    map,
    mix,
    packing,
    prefetch,
    process_prefetch,
    shuffle,
    source,
    zip,
)
from grain._src.python.dataset.transformations.mix import MixedIterDataset
from grain._src.python.dataset.transformations.packing import FirstFitPackIterDataset
from grain._src.python.dataset.transformations.prefetch import (
    MultiprocessPrefetchIterDataset,
    ThreadPrefetchIterDataset,
)
from grain._src.python.dataset.transformations.zip import ZipIterDataset
from grain._src.python.experimental.index_shuffle.python import (
    index_shuffle_module as index_shuffle,
)
from grain._src.python.ipc.shared_memory_array import SharedMemoryArrayMetadata
from grain._src.python.samplers import IndexSampler

print(
    sorted(
        name
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "grain"
        and (getattr(module, "__file__", None) or "").count("/grain/")
    )
)
