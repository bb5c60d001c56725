"""The examples in docstrings do what they say."""

import doctest
import importlib
import inspect
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


class Finder(doctest.DocTestFinder):
    def _from_module(self, module, object):
        # A decorated function counts as its own module's.
        return super()._from_module(module, inspect.unwrap(object))


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    for listed in dir(module):
        getattr(module, listed, None)  # Some names are there once they are asked for.
    names = {**vars(module), "np": np, "grain": gristmill, "gristmill": gristmill}
    try:
        for test in Finder().find(module, globs=names):
            doctest.DebugRunner().run(test)
    except doctest.UnexpectedException as raised:
        raise raised.exc_info[1] from None
    except doctest.DocTestFailure as failure:
        source, example = failure.example.source, failure.test.name
        pytest.fail(f"{example}: {source}gives {failure.got}not {failure.example.want}")
