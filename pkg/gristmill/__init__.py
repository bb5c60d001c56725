"""Gristmill: a data loader for machine learning, a drop-in for Grain.

``import gristmill as grain`` runs an existing Grain script: same order, same random
draws, same checkpoints.  ``gristmill.python`` has Grain's older names, and every one
of them is here as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill import monitoring
from gristmill._base import imports, listing, moved
from gristmill.config import config

if TYPE_CHECKING:
    from gristmill import (
        bad_records,
        checkpoint,
        constants,
        drop_in,
        errors,
        experimental,
        multiprocessing,
        python,
        samplers,
        sharding,
        sources,
        transforms,
    )
    from gristmill._dataset.model.iter_dataset import IterDataset
    from gristmill._dataset.model.iterator import DatasetIterator
    from gristmill._dataset.model.map_dataset import MapDataset
    from gristmill.constants import (
        DATASET_INDEX,
        EPOCH,
        INDEX,
        META_FEATURES,
        RECORD,
        RECORD_KEY,
        SEED,
    )
    from gristmill.errors import (
        ArenaFull,
        CorruptRecord,
        GristmillError,
        RemoteError,
        ShapeMismatch,
        StateMismatch,
        TooManyErrors,
        WorkerDied,
    )
    from gristmill.loader import DataLoader, DataLoaderIterator, load
    from gristmill.operations import (
        BatchOperation,
        FilterOperation,
        MapOperation,
        Operation,
        RandomMapOperation,
    )
    from gristmill.options import MultiprocessingOptions, ReadOptions
    from gristmill.python import (
        FilterTransform,
        MapTransform,
        MapWithIndexTransform,
        PyGrainCheckpointHandler,
        PyGrainDatasetIterator,
        RandomMapTransform,
        SharedMemoryArray,
    )
    from gristmill.python import PyGrainCheckpointRestore as PyGrainCheckpointRestore
    from gristmill.python import PyGrainCheckpointSave as PyGrainCheckpointSave
    from gristmill.records import Record, RecordMetadata
    from gristmill.samplers import IndexSampler, Sampler, SequentialSampler
    from gristmill.sharding import (
        NoSharding,
        ShardByJaxProcess,
        ShardByTorchProcess,
        ShardOptions,
    )
    from gristmill.sources import (
        ArrayRecordDataSource,
        RandomAccessDataSource,
        RangeDataSource,
    )
    from gristmill.sources import SharedMemoryDataSource as InMemoryDataSource
    from gristmill.transforms import (
        Batch,
        DatasetSelectionMap,
        Filter,
        FlatMap,
        Map,
        MapWithIndex,
        RandomMap,
        Transformation,
        Transformations,
    )
    from gristmill.transforms import FlatMap as FlatMapTransform

__all__ = [
    "ArenaFull",
    "ArrayRecordDataSource",
    "Batch",
    "BatchOperation",
    "CorruptRecord",
    "DATASET_INDEX",
    "DataLoader",
    "DataLoaderIterator",
    "DatasetIterator",
    "DatasetSelectionMap",
    "EPOCH",
    "Filter",
    "FilterOperation",
    "FilterTransform",
    "FlatMap",
    "FlatMapTransform",
    "GristmillError",
    "INDEX",
    "InMemoryDataSource",
    "IndexSampler",
    "IterDataset",
    "META_FEATURES",
    "Map",
    "MapDataset",
    "MapOperation",
    "MapTransform",
    "MapWithIndex",
    "MapWithIndexTransform",
    "MultiprocessingOptions",
    "NoSharding",
    "Operation",
    "PyGrainCheckpointHandler",
    "PyGrainDatasetIterator",
    "RECORD",
    "RECORD_KEY",
    "RandomAccessDataSource",
    "RandomMap",
    "RandomMapOperation",
    "RandomMapTransform",
    "RangeDataSource",
    "ReadOptions",
    "Record",
    "RecordMetadata",
    "RemoteError",
    "SEED",
    "Sampler",
    "SequentialSampler",
    "ShapeMismatch",
    "ShardByJaxProcess",
    "ShardByTorchProcess",
    "ShardOptions",
    "SharedMemoryArray",
    "StateMismatch",
    "TooManyErrors",
    "Transformation",
    "Transformations",
    "WorkerDied",
    "__version__",
    "__version_info__",
    "bad_records",
    "checkpoint",
    "config",
    "constants",
    "drop_in",
    "errors",
    "experimental",
    "load",
    "monitoring",
    "multiprocessing",
    "python",
    "samplers",
    "sharding",
    "sources",
    "transforms",
]

__version__ = "0.1.0"
__version_info__ = (0, 1, 0)

# Where names are looked up when they are first used: a worker needs few of them.
_HOMES = {
    "_dataset.model.iter_dataset": "IterDataset",
    "_dataset.model.map_dataset": "MapDataset",
    "errors": "ArenaFull CorruptRecord GristmillError RemoteError ShapeMismatch"
    " StateMismatch TooManyErrors WorkerDied",
    "python": "ArrayRecordDataSource Batch BatchOperation DATASET_INDEX DataLoader"
    " DatasetIterator DatasetSelectionMap EPOCH FilterOperation FilterTransform INDEX"
    " InMemoryDataSource IndexSampler META_FEATURES MapOperation MapTransform"
    " MapWithIndexTransform MultiprocessingOptions NoSharding Operation"
    " PyGrainCheckpointHandler PyGrainCheckpointRestore PyGrainCheckpointSave"
    " PyGrainDatasetIterator RECORD RECORD_KEY RandomAccessDataSource"
    " RandomMapOperation RandomMapTransform RangeDataSource ReadOptions Record"
    " RecordMetadata SEED Sampler SequentialSampler ShardByJaxProcess ShardOptions"
    " SharedMemoryArray Transformation Transformations load",
    "loader": "DataLoaderIterator",
    "sharding": "ShardByTorchProcess",
    "transforms": "Filter FlatMap FlatMapTransform=FlatMap Map MapWithIndex RandomMap",
}
_MODULES = (
    "bad_records beam checkpoint constants drop_in errors experimental jax"
    " multiprocessing python samplers sharding sources torch transforms"
)

# Type checkers must not see it: they would accept every name.
if not TYPE_CHECKING:
    __getattr__ = listing.lazily(__name__, _HOMES, _MODULES)


def __dir__() -> list[str]:
    optional = {"beam": "apache_beam", "jax": "jax", "torch": "torch"}
    for name in ("PyGrainCheckpointRestore", "PyGrainCheckpointSave"):
        optional[name] = listing.ORBAX
    return listing.listed(__all__, optional)


moved.find_moved_modules()
imports.when_imported("absl.flags", "gristmill._peers.absl_flags:define")
imports.when_imported(
    "keras.src.trainers.data_adapters", "gristmill._peers.keras:adapt"
)
imports.when_imported("gristmill._dataset", "gristmill._observe.face:observe_datasets")
monitoring.setup_telemetry()
