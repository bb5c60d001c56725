"""Under drop_in, names of grain._src are Gristmill's own objects."""

import importlib
import inspect
import json
import subprocess
import sys

import pytest

import gristmill
from gristmill._base import grain_names

grain = pytest.importorskip("grain")

# What public projects import, by version of Grain: MaxText, axlearn, xarray's users...
IMPORTS = """
import grain._src.core.constants as constants
import grain._src.python.testing.experimental as test_util
from grain._src.core import constants, sharding, transforms, tree, tree_lib
from grain._src.core.config import config
from grain._src.core.sharding import ShardByJaxProcess, even_split
from grain._src.core.transforms import Batch, FlatMap, FlatMapTransform
from grain._src.python import data_loader, data_sources, options, record, samplers
from grain._src.python import shared_memory_array
from grain._src.python.checkpoint_handlers import CheckpointHandler
from grain._src.python.data_loader import DataLoader, DataLoaderIterator
from grain._src.python.data_sources import ArrayRecordDataSource, SupportsIndex
from grain._src.python.dataset import base, dataset, stats, elastic_iterator
from grain._src.python.dataset.dataset import DatasetIterator
from grain._src.python.dataset.sources.parquet_dataset import ParquetIterDataset
from grain._src.python.dataset.sources.tfrecord_dataset import (
    TFRecordIterDataset, _TFRecordDatasetIterator, _TFRecordReader)
from grain._src.python.dataset.transformations import (
    batch, filter, flatmap, interleave, map, mix, packing, prefetch, shuffle, source,
    zip)
from grain._src.python.dataset.transformations.mix import MixedIterDataset
from grain._src.python.dataset.transformations.packing import FirstFitPackIterDataset
from grain._src.python.dataset.transformations.zip import ZipIterDataset
from grain._src.python.experimental.index_shuffle.python import (
    index_shuffle_module as index_shuffle)
from grain._src.python.ipc.shared_memory_array import SharedMemoryArrayMetadata
from grain._src.python.samplers import IndexSampler
"""
START = """
import json, sys
import gristmill, gristmill.drop_in
gristmill.drop_in.install()
"""


def after_install(code):
    """What a program prints that installs drop_in first; Grain is installed, too."""
    done = subprocess.run(
        [sys.executable, "-c", START + code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def names():
    """(Grain's module, Grain's name) of each alias."""
    return [
        (module, pair.partition("=")[0])
        for module, homes in grain_names._HOMES.items()
        for listed in homes.values()
        for pair in listed.split()
    ]


SAME = """
import importlib
spaces = [gristmill, *(importlib.import_module(f"gristmill.{name}") for name in (
    "checkpoint constants experimental multiprocessing python samplers sharding"
    " sources transforms").split())]
for module, name in json.loads(sys.argv[1]):
    found = getattr(importlib.import_module(f"grain.{module}"), name)
    others = [getattr(space, name) for space in spaces if hasattr(space, name)]
    assert all(found is other for other in others), (module, name)
    print(module, name, bool(others))
"""


def test_each_name_is_the_public_object_of_that_name():
    code = SAME.replace("sys.argv[1]", repr(json.dumps(names())))
    found = [line.split() for line in after_install(code).splitlines()]
    assert [(module, name) for module, name, _ in found] == names()
    public = {name for _, name, is_public in found if is_public == "True"}
    # Of Grain's experimental names, each has an internal home.
    assert set(gristmill.experimental.__all__) - public == set()


def test_what_projects_import_is_there_and_grain_is_not():
    code = """
print(sorted(name for name, module in sys.modules.items()
             if name.partition(".")[0] == "grain"
             and (getattr(module, "__file__", None) or "").count("/grain/")))
"""
    assert after_install(IMPORTS + code) == "[]\n"


def test_names_do_what_they_are_imported_for():
    code = """
from grain._src.core import sharding, tree
from grain._src.python.dataset import dataset, stats
from grain._src.python.experimental.index_shuffle.python import index_shuffle_module

class Doubled(dataset.DatasetIterator):
    @stats.record_next_duration_if_output
    @stats.trace_input_pipeline_next(stage_category=stats.IPL_CAT_PREPROCESSING)
    def __next__(self):
        with stats.Timer() as _, self._stats.record_self_time():
            return tree.map_structure(lambda x: 2 * x, next(self._parent))
    def get_state(self):
        return self._parent.get_state()
    def set_state(self, state):
        self._parent.set_state(state)

class DoubledDataset(dataset.IterDataset):
    def __iter__(self):
        return Doubled(iter(self._parent))

records = dataset.MapDataset.range(3).map(lambda i: {"i": i}).to_iter_dataset()
print(list(DoubledDataset(records)))
print(sharding.even_split(7, sharding.ShardOptions(1, 2)))
print(index_shuffle_module.index_shuffle(0, max_index=9, seed=1, rounds=4))
"""
    expected = gristmill.experimental.index_shuffle(0, max_index=9, seed=1, rounds=4)
    assert after_install(code).splitlines() == [
        "[{'i': 0}, {'i': 2}, {'i': 4}]",
        "(4, 7)",
        str(expected),
    ]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("import grain._src.core.profiler", "grain._src.core.profiler"),
        ("from grain._src.core import profiler", "grain._src.core.profiler"),
        ("import grain._src.tensorflow.x", "grain._src.tensorflow"),
        (
            "from grain._src.core.transforms import Nosuch",
            "grain._src.core.transforms.Nosuch",
        ),
        ("import grain.loader", "grain.loader"),
    ],
)
def test_what_is_missing_is_an_import_error_that_says_so(line, name):
    code = f"""
try:
    {line}
except ImportError as error:
    print(type(error).__name__, error)
"""
    assert after_install(code) == (
        f"ModuleNotFoundError gristmill.drop_in has no {name}. It has Grain's public"
        " names, and of the internal ones those with a counterpart in Gristmill. Use a"
        " public name, or run this program without gristmill.drop_in.\n"
    )


def test_programs_may_ask_whether_a_name_is_there():
    code = """
from grain._src.core import transforms
print(hasattr(transforms, "Map"), hasattr(transforms, "Nosuch"))
print("Map" in dir(transforms))
from grain._src.core.sharding import *
import pickle
print(pickle.loads(pickle.dumps(even_split)) is even_split)
"""
    assert after_install(code).split() == ["True", "False", "True", "True"]


@pytest.mark.multiprocess
def test_functions_that_refer_to_such_modules_reach_workers(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        "import grain\n"
        "from grain._src.core import sharding, tree\n"
        "def double(x):\n"
        "    assert sharding.NoSharding is grain.sharding.NoSharding\n"
        "    return tree.map_structure(lambda leaf: 2 * leaf, {'x': x})\n"
        "ds = grain.MapDataset.range(3).map(double).to_iter_dataset()\n"
        "options = grain.MultiprocessingOptions(num_workers=1)\n"
        "print(list(ds.mp_prefetch(options)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "gristmill.drop_in", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[{'x': 0}, {'x': 2}, {'x': 4}]\n", done.stderr


def parameters_of(function):
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


# Protocols and types of annotations, and iterators, which datasets make.
NOT_CALLED = """
    BatchFn CheckpointableIterator InterleaveDatasetIterator PackingDatasetIterator
    PrefetchDatasetIterator RandomAccessDataSource Stats Transformation Transformations
    _TFRecordDatasetIterator
""".split()
# `make_batch` cannot write to shared memory; the others have an argument for Grain.
OTHER_PARAMETERS = {
    "MixedMapDataset": {"selection_map"},
    "PackAndBatchOperation": {"_cur_batch"},
    "get_dataset_options": {"ds"},
    "get_pretty_transform_name": set(),
    "make_batch": {"values", "output_to_shared_memory"},
    "map_structure_with_path": {"is_leaf_takes_path"},
}


def test_functions_and_classes_take_the_arguments_of_grains():
    compared = 0
    for module, name in names():
        try:
            theirs = getattr(importlib.import_module(f"grain.{module}"), name)
        except (ImportError, AttributeError):
            continue  # Of another version of Grain.
        home, ours = grain_names._Names(f"grain.{module}")._homes[name]
        ours = getattr(importlib.import_module(home), ours)
        if name in NOT_CALLED or not callable(theirs):
            continue
        missing = parameters_of(theirs).keys() - parameters_of(ours).keys()
        assert missing <= OTHER_PARAMETERS.get(name, set()), (module, name, missing)
        compared += 1
    assert compared > 80
