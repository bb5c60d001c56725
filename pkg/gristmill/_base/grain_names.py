"""Maps the names in Grain's internal modules to Gristmill's objects.

Projects import names from ``grain._src`` that Grain does not export.  `drop_in` creates
those modules when they are imported, and their names are Gristmill's own objects.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from gristmill._base.lazy_names import locate_names

# The name of worker processes if Grain's is not in use; {} is the worker's number.
WORKER_NAME = "GristmillWorker-{}"

_DATASET = "_src.python.dataset"
_STEPS = f"{_DATASET}.transformations"
_NODES = "_dataset.nodes"

# For each of Grain's modules, the modules of Gristmill that define its names.
# "Grain's=Gristmill's" if the names differ.  Names of older versions of Grain are
# included.
_HOMES: dict[str, dict[str, str]] = {
    "_src.core.config": {"config": "Config config"},
    "_src.core.constants": {
        "constants": "DATASET_INDEX EPOCH INDEX META_FEATURES RECORD RECORD_KEY SEED"
    },
    "_src.core.monitoring": {"monitoring": "setup_telemetry"},
    "_src.core.sharding": {
        "sharding": "NoSharding ShardByJaxProcess ShardOptions even_split"
        " get_process_index_and_count=jax_process"
    },
    "_src.core.transforms": {
        "transforms": "Batch Filter FilterTransform=Filter FlatMap"
        " FlatMapTransform=FlatMap Map MapTransform=Map MapWithIndex"
        " MapWithIndexTransform=MapWithIndex RandomMap RandomMapTransform=RandomMap"
        " TfRandomMap TfRandomMapTransform=TfRandomMap Transformation Transformations",
        "_dataset.model.names": "get_pretty_transform_name=transform_name",
    },
    "_src.core.tree": {
        "_peers.trees": "assert_same_structure estimate_byte_size flatten"
        " flatten_with_path map_structure map_structure_up_to"
        " map_structure_with_path spec_like unflatten_as"
    },
    "_src.core.version": {"": "__version__ __version_info__"},
    "_src.python.checkpoint.elastic_checkpoint": {
        "_base.shard_files": "get_checkpoint_process_count=saved_process_count"
        " restore_elastic_iterator=restore_shards save_elastic_iterator=save_shards"
    },
    "_src.python.checkpoint.handler": {
        "checkpoint": "CheckpointHandler CheckpointRestore CheckpointSave"
    },
    "_src.python.data_loader": {
        "loader": "DataLoader DataLoaderIterator",
        "_peers.grain": "_determine_worker_count=determine_worker_count",
    },
    "_src.python.data_sources": {
        "sources": "ArrayRecordDataSource RandomAccessDataSource RangeDataSource"
        " SharedMemoryDataSource SupportsIndex"
    },
    f"{_DATASET}.base": {
        "_dataset.model.options": "DatasetOptions ExecutionTrackingMode IteratorContext"
        " MultiprocessingContext",
        "_dataset.model.spec": "ShapeDtypeStruct ShapeDtypeStructProtocol",
        "sources": "RandomAccessDataSource",
        "transforms": "DatasetSelectionMap",
    },
    f"{_DATASET}.dataset": {
        f"{_NODES}.apply": "apply_transformations",
        "_dataset.model.iter_dataset": "IterDataset IterDatasetMeta",
        "_dataset.model.map_dataset": "MapDataset MapDatasetMeta",
        "_dataset.model.iterator": "DatasetIterator get_next_index set_next_index",
        "_dataset.model.spec": "get_element_spec",
        "_observe.summary_message": "get_execution_summary",
        f"{_NODES}.with_options": "WithOptionsIterDataset",
    },
    f"{_DATASET}.elastic_iterator": {
        f"{_NODES}.elastic": "ElasticIterator",
        f"{_NODES}.elastic_shards": "ElasticIterDatasetIterator"
        "=ElasticShardsDatasetIterator",
    },
    f"{_DATASET}.sources.parquet_dataset": {f"{_NODES}.parquet": "ParquetIterDataset"},
    f"{_DATASET}.sources.tfrecord_dataset": {
        f"{_NODES}.tf_record": "TFRecordIterDataset _TFRecordReader=TFRecordReader"
        " _TFRecordDatasetIterator=TFRecordDatasetIterator"
    },
    f"{_DATASET}.stats": {
        "_dataset.model.stats": "IPL_CAT_ENQUEUE IPL_CAT_PREFETCH IPL_CAT_PREPROCESSING"
        " IPL_CAT_READ IPL_CAT_UNKNOWN Stats Timer record_next_duration_if_output"
        " trace_input_pipeline trace_input_pipeline_next trace_input_pipeline_prefetch",
        "_observe.summary_message": "pretty_format_summary",
    },
    f"{_STEPS}.batch": {
        f"{_NODES}.batch": "BatchFn BatchIterDataset BatchMapDataset batch_and_pad"
        " make_batch",
    },
    f"{_STEPS}.cache": {f"{_NODES}.repeat": "CacheIterDataset"},
    f"{_STEPS}.filter": {f"{_NODES}.map": "FilterIterDataset FilterMapDataset"},
    f"{_STEPS}.flatmap": {f"{_NODES}.flat_map": "FlatMapIterDataset FlatMapMapDataset"},
    f"{_STEPS}.interleave": {
        f"{_NODES}.interleave": "InterleaveDatasetIterator InterleaveIterDataset"
    },
    f"{_STEPS}.limit": {f"{_NODES}.repeat": "LimitIterDataset"},
    f"{_STEPS}.map": {
        f"{_NODES}.map": "MapIterDataset MapMapDataset MapWithIndexIterDataset"
        " MapWithIndexMapDataset RandomMapIterDataset RandomMapMapDataset RngPool",
    },
    f"{_STEPS}.mix": {
        f"{_NODES}.mix": "ConcatenateMapDataset MixedIterDataset MixedMapDataset"
    },
    f"{_STEPS}.packing": {
        f"{_NODES}.packing": "BestFitPackIterDataset FirstFitPackIterDataset"
        " PackIterDataset PackingDatasetIterator"
    },
    f"{_STEPS}.packing_concat_then_split": {
        f"{_NODES}.concat_split": "BOSHandling ConcatThenSplitIterDataset"
    },
    f"{_STEPS}.prefetch": {
        "_dataset.parallel.multithread": "multithread_prefetch",
        "_dataset.parallel.process_prefetch": "MultiprocessPrefetchIterDataset"
        "=ProcessPrefetchIterDataset",
        "_peers.grain": "SupportsInPlaceSlicing SupportsSlicedStateManagement",
        f"{_NODES}.thread_prefetch": "CheckpointableIterator"
        " ThreadPrefetchDatasetIterator ThreadPrefetchIterDataset",
        f"{_NODES}.to_iter": "PrefetchDatasetIterator PrefetchIterDataset",
        f"{_NODES}.with_options": "get_dataset_options=options_of",
    },
    f"{_STEPS}.prefetch_autotune": {
        "_dataset.parallel.performance": "PerformanceConfig pick_performance_config"
    },
    f"{_STEPS}.process_prefetch": {
        "_dataset.parallel.process_iterator": "ProcessPrefetchDatasetIterator",
        "_dataset.parallel.process_prefetch": "ProcessPrefetchIterDataset",
        "_peers.grain": "multiprocess_prefetch",
    },
    f"{_STEPS}.rebatch": {f"{_NODES}.rebatch": "RebatchIterDataset"},
    f"{_STEPS}.repeat": {
        f"{_NODES}.order": "RepeatMapDataset",
        f"{_NODES}.repeat": "RepeatIterDataset",
    },
    f"{_STEPS}.shuffle": {
        f"{_NODES}.order": "ShuffleMapDataset",
        f"{_NODES}.window_shuffle": "WindowShuffleIterDataset WindowShuffleMapDataset",
    },
    f"{_STEPS}.slice": {f"{_NODES}.order": "ReindexMapDataset SliceMapDataset"},
    f"{_STEPS}.source": {f"{_NODES}.source": "RangeMapDataset SourceMapDataset"},
    f"{_STEPS}.zip": {f"{_NODES}.zip": "ZipIterDataset ZipMapDataset"},
    "_src.python.experimental.device_put.device_put": {
        "_dataset.parallel.device_put": "device_put"
    },
    "_src.python.experimental.example_packing.packing": {
        f"{_NODES}.packing": "PackAndBatchOperation"
    },
    "_src.python.experimental.index_shuffle.python.index_shuffle_module": {
        "experimental": "index_shuffle"
    },
    "_src.python.ipc.shared_memory_array": {
        "multiprocessing": "SharedMemoryArray SharedMemoryArrayMetadata"
    },
    "_src.python.load": {"loader": "load"},
    "_src.python.operations": {
        "operations": "BatchOperation FilterOperation MapOperation Operation"
        " RandomMapOperation"
    },
    "_src.python.options": {"options": "MultiprocessingOptions ReadOptions"},
    "_src.python.record": {"records": "Record RecordMetadata"},
    "_src.python.samplers": {"samplers": "IndexSampler Sampler SequentialSampler"},
    "_src.python.testing.experimental": {
        f"{_NODES}.checkpoint_check": "assert_equal_output_after_checkpoint"
    },
    "proto.execution_summary_pb2": {
        "_observe.summary_message": "ExecutionSummaries ExecutionSummary"
    },
}
# Other names of these modules in some versions of Grain.
_HOMES["_src.core.tree_lib"] = _HOMES["_src.core.tree"]
_HOMES["_src.python.checkpoint_handlers"] = _HOMES["_src.python.checkpoint.handler"]
_HOMES["_src.python.shared_memory_array"] = _HOMES[
    "_src.python.ipc.shared_memory_array"
]


def install() -> None:
    """Make imports of submodules of ``grain`` find Gristmill's counterparts."""
    if not _is_installed():
        sys.meta_path.insert(0, _Finder())
    # As with Grain, its submodules are attributes of their packages.
    for package in ("_src", "proto"):
        importlib.import_module(f"grain.{package}")


def _is_installed() -> bool:
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def worker_name(buffer: int) -> str:
    """Return the name of worker processes: ours, or Grain's if `install` was called.

    Args:
        buffer: Outputs that each worker may compute ahead.

    Returns:
        A format string; ``{}`` is the worker's number.
    """
    if not _is_installed():
        return WORKER_NAME
    iterator = f"ProcessPrefetchDatasetIterator(buffer_size={buffer})"
    return f"grain-process-prefetch-{iterator}"


class _Finder:
    """Finds Grain's internal modules here, and rejects those without a counterpart.

    This has no base class, since importlib.abc is slow to import.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of one of Grain's modules; None for any other module.

        Raises:
            ModuleNotFoundError: Gristmill has no counterpart to this module of Grain.
        """
        package, _, name = fullname.partition(".")
        if package != "grain" or not name:
            return None
        if not _has_module(name):
            raise _missing_module_error(fullname)
        loader: Any = self
        return importlib.machinery.ModuleSpec(
            fullname, loader, origin=__name__, is_package=True
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Create the module, without looking up its names."""
        return _GrainModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: names are looked up when they are used."""


class _GrainModule(ModuleType):
    """One of Grain's modules, or a package of them.

    Every module is a package, so that ``from module import name`` calls the finder for
    a missing name.  The finder's error contains advice.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._homes = locate_names(_HOMES.get(name.removeprefix("grain."), {}))
        self.__all__ = list(self._homes)

    def __getattr__(self, name: str) -> Any:
        if name not in self._homes:
            path = f"{self.__name__}.{name}"
            if _has_module(path.removeprefix("grain.")):
                return importlib.import_module(path)
            raise AttributeError(f"gristmill.drop_in has no {path}")
        module, our_name = self._homes[name]
        value = getattr(importlib.import_module(module), our_name)
        setattr(self, name, value)
        return value

    def __reduce__(self) -> Any:
        # Functions of the main program, sent to workers, may refer to the module.
        return importlib.import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._homes})


def _has_module(name: str) -> bool:
    """Return whether a module of Grain, or a module in that package, has names here."""
    return name in _HOMES or any(module.startswith(f"{name}.") for module in _HOMES)


def _missing_module_error(name: str) -> ModuleNotFoundError:
    """Return the error for a missing module.

    The attribute `name` of the error is the parent's name: the import system swallows
    errors whose `name` is the module that it looked for.
    """
    return ModuleNotFoundError(
        f"gristmill.drop_in has no {name}. It has Grain's public names, and the"
        " internal ones with a counterpart in Gristmill. Use a public name, or run"
        " this program without gristmill.drop_in.",
        name=name.rpartition(".")[0],
    )
