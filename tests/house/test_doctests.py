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
    try:
        doctest.testmod(module, globs=names, raise_on_error=True)
    except doctest.UnexpectedException as raised:
        raise raised.exc_info[1] from None
    except doctest.DocTestFailure as failure:
        source, example = failure.example.source, failure.test.name
        pytest.fail(f"{example}: {source}gives {failure.got}not {failure.example.want}")
