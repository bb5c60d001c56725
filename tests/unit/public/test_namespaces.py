"""Tests that the public namespaces have Grain's names."""

import importlib

import pytest

import gristmill
import gristmill.python
from faults.scripts import run

grain = pytest.importorskip("grain")

MODULES = [
    "checkpoint",
    "constants",
    "experimental",
    "multiprocessing",
    "samplers",
    "sharding",
    "sources",
    "transforms",
]

# Names in grain.python for objects of other modules.
RENAMED = {
    "FilterTransform": "transforms.Filter",
    "MapTransform": "transforms.Map",
    "MapWithIndexTransform": "transforms.MapWithIndex",
    "RandomMapTransform": "transforms.RandomMap",
    "InMemoryDataSource": "sources.SharedMemoryDataSource",
    "PyGrainCheckpointHandler": "checkpoint.CheckpointHandler",
    "PyGrainDatasetIterator": "loader.DataLoaderIterator",
    "SharedMemoryArray": "multiprocessing.SharedMemoryArray",
    "BatchOperation": "operations.BatchOperation",
    "IndexSampler": "samplers.IndexSampler",
}


def public(module):
    return {name for name in dir(module) if not name.startswith("_")}


@pytest.mark.parametrize("module", MODULES)
def test_modules_have_grain_names(module):
    ours = importlib.import_module(f"gristmill.{module}")
    theirs = importlib.import_module(f"grain.{module}")
    missing = {name for name in public(theirs) if not hasattr(ours, name)}
    assert not missing


def test_old_namespace_has_grain_names():
    theirs = public(importlib.import_module("grain.python"))
    missing = {name for name in theirs if not hasattr(gristmill.python, name)}
    assert not missing


@pytest.mark.parametrize("name", RENAMED)
def test_old_names_are_the_same_objects(name):
    module, original = RENAMED[name].split(".")
    found = getattr(importlib.import_module(f"gristmill.{module}"), original)
    assert getattr(gristmill.python, name) is found


def test_old_names_are_at_top_level_too():
    names = public(importlib.import_module("grain.python"))
    differing = [
        name
        for name in names
        if getattr(gristmill, name, None) is not getattr(gristmill.python, name)
    ]
    assert not differing


def test_top_level_has_grain_names():
    missing = {name for name in public(grain) if not hasattr(gristmill, name)}
    # Internals of Grain, and names that `import grain` adds by accident.
    assert missing <= {"monitoring", "proto"}


def test_constants_match_grain():
    for name in public(grain.constants):
        assert getattr(gristmill.constants, name) == getattr(grain.constants, name)


def test_experimental_has_only_grain_names():
    theirs = public(grain.experimental)
    assert public(gristmill.experimental) - {"annotations"} <= theirs


def test_all_lists_existing_names():
    for name in [*MODULES, "python", "experimental", "config", "options", "records"]:
        module = importlib.import_module(f"gristmill.{name}")
        assert [entry for entry in module.__all__ if not hasattr(module, entry)] == []


def test_importing_loads_no_framework():
    assert run("namespaces/imported_frameworks") == "[]\n"
