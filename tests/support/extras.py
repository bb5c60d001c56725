"""Packages of the test extra, which depend on the platform."""

import functools
import importlib
import importlib.util
import pathlib
import sys
import tomllib
import types
import warnings

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from support.places import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]


def requirements(extra, **platform):
    """Return the requirements of an extra, on this platform or with other markers."""
    environment = {**default_environment(), **platform}
    return [
        requirement
        for requirement in map(Requirement, PROJECT["optional-dependencies"][extra])
        if not requirement.marker or requirement.marker.evaluate(environment)
    ]


def packages(extra, **platform):
    """Return the packages of an extra, on this platform or with other markers."""
    return {requirement.name for requirement in requirements(extra, **platform)}


def need(*packages):
    """Raise ModuleNotFoundError if one of the packages is missing."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(f"no package {package}", name=package)


def need_tensorflow():
    """Skip the test or module if the extra does not list TensorFlow here."""
    if not {"tensorflow", "tensorflow-cpu"} & packages("test"):
        pytest.skip("TensorFlow has no wheel for this Python", allow_module_level=True)


def bagz():
    """Import bagz; skip the module if the extra does not list it here."""
    if "bagz" not in packages("test"):
        pytest.skip("bagz has no wheel for this machine", allow_module_level=True)
    return importlib.import_module("bagz")


def megatron(module):
    """Import a module of megatron.core, which warns about missing GPU packages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"megatron.core.{module}")


def mosaicml():
    """Import streaming.base of mosaicml-streaming."""
    _skip_init("streaming")  # It imports torchvision.
    return importlib.import_module("streaming.base")


def olmo_core(module):
    """Import a module of olmo_core.data, which can read only local files."""
    if "cached_path" not in sys.modules:
        # The real package downloads files, and imports two cloud SDKs.
        downloads = types.ModuleType("cached_path")
        downloads.cached_path = lambda path, quiet: pathlib.Path(path)
        schemes = types.ModuleType("cached_path.schemes")
        schemes.add_scheme_client = lambda client: None
        schemes.S3Client = type("S3Client", (), {"recoverable_errors": ()})
        schemes.SchemeClient = type("SchemeClient", (), {})
        sys.modules |= {"cached_path": downloads, "cached_path.schemes": schemes}
    _skip_init("olmo_core")  # It changes environment variables of Triton.
    _skip_init("olmo_core.data")  # It imports modules that need more packages.
    return importlib.import_module(f"olmo_core.data.{module}")


@functools.cache
def _skip_init(package):
    """Make submodules of a package importable without running its __init__.py."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"no package {package}", name=package)
    sys.modules[package] = importlib.util.module_from_spec(spec)


def tensorflow(module="tensorflow"):
    """Import TensorFlow or a submodule; skip if the extra does not list it here."""
    need_tensorflow()
    return importlib.import_module(module)
