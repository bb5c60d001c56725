"""The examples in docstrings do what they say."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import gristmill

SKIPPED = ("_core", "_hot", "_launcher", "_processes", "_zygote")
MODULES = [
    found.name
    for found in pkgutil.walk_packages(gristmill.__path__, "gristmill.")
    if found.name.split(".")[1] not in SKIPPED
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    names = {**vars(module), "np": np, "grain": gristmill, "gristmill": gristmill}
    assert doctest.testmod(module, globs=names).failed == 0
