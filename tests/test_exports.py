"""What `import gristmill` gives, and what it does not load."""

import importlib
import importlib.metadata
import json
import subprocess
import sys
import types

import pytest

import gristmill

HEAVY = """
    PIL absl aiohttp apache_beam array_record datasets fsspec grain jax keras orbax
    pyarrow tensorflow tensorflow_datasets torch
""".split()
SUBMODULES = (
    "bad_records",
    "beam",
    "checkpoint",
    "constants",
    "errors",
    "experimental",
    "jax",
    "multiprocessing",
    "python",
    "samplers",
    "sharding",
    "sources",
    "torch",
    "transforms",
)
# Grain's names, less those of its Dataset API.
TOP_LEVEL = """
    DataLoader DataLoaderIterator MultiprocessingOptions ReadOptions Record
    RecordMetadata checkpoint config constants experimental load multiprocessing
    samplers sharding sources transforms
""".split()
OF_PYTHON = """
    ArrayRecordDataSource Batch BatchOperation DATASET_INDEX DataLoader EPOCH
    FilterOperation FilterTransform INDEX InMemoryDataSource IndexSampler MapOperation
    MapTransform MapWithIndexTransform META_FEATURES MultiprocessingOptions NoSharding
    Operation PyGrainCheckpointHandler PyGrainDatasetIterator RECORD RECORD_KEY
    RandomAccessDataSource RandomMapOperation RandomMapTransform RangeDataSource
    ReadOptions Record RecordMetadata SEED Sampler SequentialSampler ShardByJaxProcess
    ShardOptions SharedMemoryArray Transformation Transformations config load
""".split()


def test_all_is_sorted_and_without_repeats():
    assert list(gristmill.__all__) == sorted(set(gristmill.__all__))


def test_all_is_the_public_names():
    defined = {
        name
        for name, value in vars(gristmill).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    of_typing = {"Any", "TYPE_CHECKING", "annotations"}
    assert defined - of_typing <= set(gristmill.__all__)
    assert all(hasattr(gristmill, name) for name in gristmill.__all__)


@pytest.mark.parametrize("name", SUBMODULES)
def test_all_of_a_submodule_exists(name):
    module = importlib.import_module(f"gristmill.{name}")
    assert all(hasattr(module, exported) for exported in getattr(module, "__all__", ()))


@pytest.mark.parametrize("name", [*TOP_LEVEL, *OF_PYTHON])
def test_grains_names_are_at_the_top_level(name):
    assert hasattr(gristmill, name)


@pytest.mark.parametrize("name", OF_PYTHON)
def test_both_spellings_are_one_object(name):
    python = importlib.import_module("gristmill.python")
    assert getattr(python, name) is getattr(gristmill, name)


@pytest.mark.multiprocess
@pytest.mark.parametrize("module", ["gristmill", "gristmill.python"])
def test_import_loads_no_framework(module):
    script = (
        f"import json, sys, {module}; "
        f"print(json.dumps(sorted(set(sys.modules) & set({HEAVY!r}))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []


def test_the_version_is_the_packages():
    assert gristmill.__version__ == importlib.metadata.version("gristmill")
