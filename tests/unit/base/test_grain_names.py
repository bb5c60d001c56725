"""Under drop_in, names of grain._src are Gristmill's own objects."""

import importlib
import inspect
import json
import subprocess
import sys

import pytest

import gristmill
from faults.scripts import PROGRAMS, run
from gristmill._base import grain_names

grain = pytest.importorskip("grain")


def names():
    """Return (Grain's module, Grain's name) of each alias."""
    return [
        (module, pair.partition("=")[0])
        for module, homes in grain_names._HOMES.items()
        for listed in homes.values()
        for pair in listed.split()
    ]


def test_each_alias_is_the_public_object():
    out = run("grain_names/same_objects", json.dumps(names()))
    found = [line.split() for line in out.splitlines()]
    assert [(module, name) for module, name, _ in found] == names()
    public = {name for _, name, is_public in found if is_public == "True"}
    # Each experimental name of Grain has an internal home.
    assert set(gristmill.experimental.__all__) - public == set()


def test_imports_of_projects_work_without_grain():
    assert run("grain_names/what_projects_import") == "[]\n"


def test_modules_are_attributes_of_their_packages():
    out = run("grain_names/attributes")
    assert out.splitlines() == ["True", "[1, 2]", "True", "False False"]


def test_aliases_work_when_used():
    expected = gristmill.experimental.index_shuffle(0, max_index=9, seed=1, rounds=4)
    assert run("grain_names/used_names").splitlines() == [
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
def test_missing_name_raises_import_error(line, name):
    assert run("grain_names/missing_name", line) == (
        f"ModuleNotFoundError gristmill.drop_in has no {name}. It has Grain's public"
        " names, and the internal ones with a counterpart in Gristmill. Use a public"
        " name, or run this program without gristmill.drop_in.\n"
    )


def test_programs_can_check_for_names():
    assert run("grain_names/asks_whether").split() == ["True", "False", "True", "True"]


@pytest.mark.multiprocess
def test_functions_using_alias_modules_reach_workers():
    program = PROGRAMS / "grain_names" / "refers_to_modules.py"
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


# Protocols and types of annotations, bases, and iterators and datasets that methods of
# datasets make.
NOT_CALLED = """
    BatchFn CheckpointableIterator InterleaveDatasetIterator PackIterDataset
    PackingDatasetIterator PrefetchDatasetIterator ProcessPrefetchDatasetIterator
    ProcessPrefetchIterDataset RandomAccessDataSource Stats Transformation
    Transformations _TFRecordDatasetIterator
""".split()
OTHER_PARAMETERS = {
    "PackAndBatchOperation": {"_cur_batch"},
    "get_dataset_options": {"ds"},
    "get_pretty_transform_name": set(),
    "map_structure_with_path": {"is_leaf_takes_path"},
}


def test_callables_accept_arguments_of_grain():
    compared = 0
    for module, name in names():
        try:
            theirs = getattr(importlib.import_module(f"grain.{module}"), name)
        except (ImportError, AttributeError):
            continue  # A name from another version of Grain.
        home, ours = grain_names._GrainModule(f"grain.{module}")._homes[name]
        ours = getattr(importlib.import_module(home), ours)
        if name in NOT_CALLED or not callable(theirs):
            continue
        missing = parameters_of(theirs).keys() - parameters_of(ours).keys()
        assert missing <= OTHER_PARAMETERS.get(name, set()), (module, name, missing)
        compared += 1
    assert compared > 80
