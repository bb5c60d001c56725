"""Packages of the test extra, which depend on the platform."""

import importlib
import importlib.util
import tomllib
import warnings

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def packages(extra, **platform):
    """Return the packages of an extra, on this platform or with other markers."""
    environment = {**default_environment(), **platform}
    return {
        requirement.name
        for requirement in map(Requirement, PROJECT["optional-dependencies"][extra])
        if not requirement.marker or requirement.marker.evaluate(environment)
    }


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


def tensorflow(module="tensorflow"):
    """Import TensorFlow or a submodule; skip if the extra does not list it here."""
    need_tensorflow()
    return importlib.import_module(module)
