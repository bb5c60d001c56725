"""Grain's older namespace; its names are aliases of objects in other modules."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gristmill import checkpoint, experimental
from gristmill._base.lazy_names import ORBAX, lazy_getattr, public_names
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill.checkpoint import CheckpointHandler as PyGrainCheckpointHandler
from gristmill.config import config
from gristmill.constants import (
    DATASET_INDEX,
    EPOCH,
    INDEX,
    META_FEATURES,
    RECORD,
    RECORD_KEY,
    SEED,
)
from gristmill.loader import DataLoader, load
from gristmill.loader import DataLoaderIterator as PyGrainDatasetIterator
from gristmill.multiprocessing import SharedMemoryArray
from gristmill.operations import (
    BatchOperation,
    FilterOperation,
    MapOperation,
    Operation,
    RandomMapOperation,
)
from gristmill.options import MultiprocessingOptions, ReadOptions
from gristmill.records import Record, RecordMetadata
from gristmill.samplers import IndexSampler, Sampler, SequentialSampler
from gristmill.sharding import NoSharding, ShardByJaxProcess, ShardOptions
from gristmill.sources import RandomAccessDataSource, RangeDataSource
from gristmill.transforms import (
    Batch,
    DatasetSelectionMap,
    Transformation,
    Transformations,
)
from gristmill.transforms import Filter as FilterTransform
from gristmill.transforms import Map as MapTransform
from gristmill.transforms import MapWithIndex as MapWithIndexTransform
from gristmill.transforms import RandomMap as RandomMapTransform

if TYPE_CHECKING:
    from gristmill.sources import ArrayRecordDataSource
    from gristmill.sources import SharedMemoryDataSource as InMemoryDataSource

    PyGrainCheckpointRestore = checkpoint.CheckpointRestore
    PyGrainCheckpointSave = checkpoint.CheckpointSave

__all__ = [
    "DATASET_INDEX",
    "EPOCH",
    "INDEX",
    "META_FEATURES",
    "RECORD",
    "RECORD_KEY",
    "SEED",
    "ArrayRecordDataSource",
    "Batch",
    "BatchOperation",
    "DataLoader",
    "DatasetIterator",
    "DatasetSelectionMap",
    "FilterOperation",
    "FilterTransform",
    "InMemoryDataSource",
    "IndexSampler",
    "IterDataset",
    "MapDataset",
    "MapOperation",
    "MapTransform",
    "MapWithIndexTransform",
    "MultiprocessingOptions",
    "NoSharding",
    "Operation",
    "PyGrainCheckpointHandler",
    "PyGrainDatasetIterator",
    "RandomAccessDataSource",
    "RandomMapOperation",
    "RandomMapTransform",
    "RangeDataSource",
    "ReadOptions",
    "Record",
    "RecordMetadata",
    "Sampler",
    "SequentialSampler",
    "ShardByJaxProcess",
    "ShardOptions",
    "SharedMemoryArray",
    "Transformation",
    "Transformations",
    "config",
    "experimental",
    "load",
]

# This makes `import gristmill.python.experimental` work, since this module is not a
# package.  Grain has both modules, too.
sys.modules[f"{__name__}.experimental"] = experimental

# Names whose modules import slow or optional packages.
_HOMES = {
    "checkpoint": "PyGrainCheckpointRestore=CheckpointRestore"
    " PyGrainCheckpointSave=CheckpointSave",
    "sources": "ArrayRecordDataSource InMemoryDataSource=SharedMemoryDataSource",
}
# Names that exist only if a package is installed.
_OPTIONAL = {"PyGrainCheckpointRestore": ORBAX, "PyGrainCheckpointSave": ORBAX}


# Hide it from type checkers, which would accept every name.
if not TYPE_CHECKING:
    __getattr__ = lazy_getattr(__name__, _HOMES)


def __dir__() -> list[str]:
    return public_names(__all__, _OPTIONAL)
