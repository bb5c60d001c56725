"""Gristmill: a data loader for machine learning, a drop-in replacement for Grain.

``import gristmill as grain`` runs an existing Grain script with the same order, random
draws and checkpoints.  ``gristmill.python`` has Grain's older names; all of them are
here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill import monitoring as monitoring
from gristmill._base import imports, lazy_names
from gristmill.config import config as config

if TYPE_CHECKING:
    from gristmill import bad_records as bad_records
    from gristmill import checkpoint as checkpoint
    from gristmill import constants as constants
    from gristmill import drop_in as drop_in
    from gristmill import errors as errors
    from gristmill import experimental as experimental
    from gristmill import images as images
    from gristmill import mixing as mixing
    from gristmill import multiprocessing as multiprocessing
    from gristmill import python as python
    from gristmill import samplers as samplers
    from gristmill import sharding as sharding
    from gristmill import sources as sources
    from gristmill import transforms as transforms
    from gristmill.errors import *  # noqa: F403
    from gristmill.loader import DataLoaderIterator as DataLoaderIterator
    from gristmill.mixing import MixSchedule as MixSchedule
    from gristmill.python import *  # noqa: F403
    from gristmill.python import PyGrainCheckpointRestore as PyGrainCheckpointRestore
    from gristmill.python import PyGrainCheckpointSave as PyGrainCheckpointSave
    from gristmill.sharding import ShardByTorchProcess as ShardByTorchProcess
    from gristmill.transforms import BlockMap as BlockMap
    from gristmill.transforms import Filter as Filter
    from gristmill.transforms import FlatMap as FlatMap
    from gristmill.transforms import Map as Map
    from gristmill.transforms import MapWithIndex as MapWithIndex
    from gristmill.transforms import RandomMap as RandomMap

    FlatMapTransform = FlatMap

__version__ = "0.2.0"
"""The version of the package."""

__version_info__ = tuple(map(int, __version__.split(".")))  # noqa: RUF048
"""The version's three numbers."""

# Names that are imported at once.
_EAGER_NAMES = "__version__ __version_info__ config monitoring"
# The modules of names that are imported at their first use, since workers need few.
_HOMES = {
    "_dataset.model.iter_dataset": "IterDataset",
    "_dataset.model.map_dataset": "MapDataset",
    "errors": "ArenaFull CorruptRecord GristmillError RemoteError ShapeMismatch"
    " StateMismatch TooManyErrors WorkerDied",
    "_dataset.model.iterator": "DatasetIterator",
    "checkpoint": "PyGrainCheckpointHandler=CheckpointHandler"
    " PyGrainCheckpointRestore=CheckpointRestore PyGrainCheckpointSave=CheckpointSave",
    "constants": "DATASET_INDEX EPOCH INDEX META_FEATURES RECORD RECORD_KEY SEED",
    "loader": "DataLoader DataLoaderIterator PyGrainDatasetIterator=DataLoaderIterator"
    " load",
    "mixing": "MixSchedule",
    "multiprocessing": "SharedMemoryArray",
    "operations": "BatchOperation FilterOperation MapOperation Operation"
    " RandomMapOperation",
    "options": "MultiprocessingOptions ReadOptions",
    "records": "Record RecordMetadata",
    "samplers": "IndexSampler Sampler SequentialSampler",
    "sharding": "NoSharding ShardByJaxProcess ShardByTorchProcess ShardOptions",
    "sources": "ArrayRecordDataSource InMemoryDataSource=SharedMemoryDataSource"
    " RandomAccessDataSource RangeDataSource",
    "transforms": "Batch BlockMap DatasetSelectionMap Filter FilterTransform=Filter"
    " FlatMap FlatMapTransform=FlatMap Map MapTransform=Map MapWithIndex"
    " MapWithIndexTransform=MapWithIndex RandomMap RandomMapTransform=RandomMap"
    " Transformation Transformations",
}
_MODULES = (
    "bad_records beam checkpoint constants drop_in errors experimental images jax"
    " mixing multiprocessing python samplers sharding sources torch transforms"
)
# Names that exist only if a package is installed.
_OPTIONAL = {
    "PyGrainCheckpointRestore": lazy_names.ORBAX,
    "PyGrainCheckpointSave": lazy_names.ORBAX,
    "beam": "apache_beam",
    "jax": "jax",
    "torch": "torch",
}


# Hide it from type checkers, which would accept every name.
if not TYPE_CHECKING:
    __getattr__ = lazy_names.lazy_getattr(__name__, _HOMES, _MODULES)
    __all__ = sorted(
        {*_EAGER_NAMES.split(), *lazy_names.locate_names(_HOMES), *_MODULES.split()}
        - _OPTIONAL.keys()
    )

    def __dir__() -> list[str]:
        return lazy_names.public_names(__all__, _OPTIONAL)


imports.when_imported("absl.flags", "gristmill._peers.absl_flags:define")
for _module, _function in {
    "keras.src.trainers.data_adapters": "adapt",
    "keras.src.utils.backend_utils": "recognise_pipelines",
    "keras.src.utils.dataset_utils": "recognise_datasets",
}.items():
    imports.when_imported(_module, f"gristmill._peers.keras:{_function}")
imports.when_imported("gristmill._dataset", "gristmill._observe:observe_datasets")
monitoring.setup_telemetry()
