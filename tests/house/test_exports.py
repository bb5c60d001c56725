"""Names that `import gristmill` provides, and modules that it does not load."""

import fnmatch
import importlib
import importlib.metadata
import inspect
import json
import pkgutil
import re
import rlcompleter
import subprocess
import sys
import tomllib
import types

import pytest

import gristmill
from gristmill._base import lazy_names
from support import extras
from support.places import ROOT

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
PUBLIC = [
    "gristmill",
    *(
        f"gristmill.{found.name}"
        for found in pkgutil.iter_modules(gristmill.__path__)
        if not found.name.startswith("_")
    ),
]
# Names listed in addition to __all__ if the package that they need is installed.
OPTIONAL = {
    "gristmill": """
        PyGrainCheckpointRestore PyGrainCheckpointSave beam jax torch
    """.split(),
    "gristmill.python": ["PyGrainCheckpointRestore", "PyGrainCheckpointSave"],
    "gristmill.checkpoint": ["CheckpointRestore", "CheckpointSave"],
}
# Grain's names, without those of its Dataset API.
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


def test_all_is_sorted_and_unique():
    assert list(gristmill.__all__) == sorted(set(gristmill.__all__))


def test_all_is_the_public_names():
    defined = {
        name
        for name, value in vars(gristmill).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    defined |= lazy_names.locate_names(
        gristmill._HOMES
    ).keys()  # Resolved at first use.
    of_typing = {"Any", "TYPE_CHECKING", "annotations"}
    of_orbax = {"PyGrainCheckpointRestore", "PyGrainCheckpointSave"}
    assert defined - of_typing - of_orbax <= set(gristmill.__all__)
    assert all(hasattr(gristmill, name) for name in gristmill.__all__)


@pytest.mark.parametrize("name", SUBMODULES)
def test_all_of_a_submodule_exists(name):
    module = importlib.import_module(f"gristmill.{name}")
    assert all(hasattr(module, exported) for exported in getattr(module, "__all__", ()))


@pytest.mark.parametrize("name", PUBLIC)
def test_dir_lists_only_the_public_names(name):
    extras.need("apache_beam", "jax", "orbax", "torch")
    module = importlib.import_module(name)
    assert dir(module) == sorted({*module.__all__, *OPTIONAL.get(name, ())})
    assert all(hasattr(module, listed) for listed in dir(module))
    assert not {"Any", "TYPE_CHECKING", "annotations"} & {*dir(module)}
    modules = {
        value.__name__
        for value in (getattr(module, listed) for listed in dir(module))
        if isinstance(value, types.ModuleType)
    }
    assert modules <= {*PUBLIC}


@pytest.mark.parametrize("name", PUBLIC)
def test_site_finds_public_names_in_the_sources(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    extras.need("apache_beam", "jax", "orbax", "torch")
    module = importlib.import_module(name)
    site_names = importlib.import_module("site_names")
    assert name in site_names.public_modules()
    assert site_names.names_of(name) == dir(module)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_classes_and_functions_have_an_example(name):
    extras.need("apache_beam", "jax", "orbax", "torch")
    module = importlib.import_module(name)
    # An inherited docstring is about another class, so it does not count.
    bare = [
        listed
        for listed in dir(module)
        if _is_defined_here(value := getattr(module, listed))
        and ">>>" not in (value.__doc__ or "")
    ]
    assert not bare, f"no example in the docstring of {name}'s {', '.join(bare)}"


def _is_defined_here(value):
    kinds = inspect.isclass(value) or inspect.isroutine(value)
    return kinds and (value.__module__ or "").split(".")[0] == "gristmill"


def test_dir_omits_names_whose_package_is_missing(monkeypatch):
    for package in ("apache_beam", "jax", "orbax", "torch"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "orbax.checkpoint", raising=False)
    for name in OPTIONAL:
        module = importlib.import_module(name)
        assert dir(module) == sorted(module.__all__)


def test_completion_includes_unused_names():
    extras.need("orbax")
    completer = rlcompleter.Completer({"grain": gristmill})

    def completed(text):
        completer.complete(text, 0)
        return [match.rstrip("()") for match in completer.matches]

    assert completed("grain.sources.T") == [
        "grain.sources.TFDSDataSource",
        "grain.sources.TFRecordDataSource",
        "grain.sources.TFRecordPosition",
        "grain.sources.TFRecordStream",
        "grain.sources.TableSource",
        "grain.sources.TarDataSource",
        "grain.sources.TokenArrayDataSource",
    ]
    assert completed("grain.checkpoint.") == [
        "grain.checkpoint.CheckpointHandler",
        "grain.checkpoint.CheckpointRestore",
        "grain.checkpoint.CheckpointSave",
        "grain.checkpoint.Checkpointable",
    ]
    assert completed("grain.e") == ["grain.errors", "grain.experimental"]


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


def test_version_equals_the_installed_package():
    assert gristmill.__version__ == importlib.metadata.version("gristmill")


@pytest.mark.claim(
    "Free-threaded builds of CPython run Gristmill with the GIL enabled, and "
    "there are no wheels for them."
)
def test_free_threaded_python_is_tested_and_has_no_wheel():
    workflow = (ROOT / ".github/workflows/wheels.yml").read_text()
    assert 'python-version: ["3.11", "3.14", "3.14t"]' in workflow
    # A module that declares not to need the GIL would leave it off.
    sources = [*ROOT.glob("csrc/bindings/*.cpp"), *ROOT.glob("pkg/gristmill/**/*.pyx")]
    declared = re.compile("mod_gil_not_used|freethreading_compatible")
    assert not [path for path in sources if declared.search(path.read_text())]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    built = settings["tool"]["cibuildwheel"]["build"].split()
    names = ["cp313-manylinux_x86_64", "cp313t-manylinux_x86_64"]
    wheels = [any(fnmatch.fnmatch(name, some) for some in built) for name in names]
    assert wheels == [True, False]
