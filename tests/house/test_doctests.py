"""The examples in docstrings work."""

import contextlib
import doctest
import importlib
import inspect
import os
import pkgutil
import sys

import numpy as np
import pytest

import gristmill
from gristmill import monitoring
from gristmill._base import grain_names

SKIPPED = ("_hot", "_launcher", "_processes", "_zygote")
MODULES = [
    found.name
    for found in pkgutil.walk_packages(gristmill.__path__, "gristmill.")
    if found.name.split(".")[1] not in SKIPPED
]


@contextlib.contextmanager
def as_without_grain():
    """Undo the effect of examples that put Gristmill in Grain's place."""

    def of_grain():
        return [name for name in sys.modules if name.partition(".")[0] == "grain"]

    real = {name: sys.modules.pop(name) for name in of_grain()}
    path, argv, asked = sys.path[:], sys.argv, os.environ.get("GRISTMILL_DROP_IN")
    try:
        yield
    finally:
        for name in of_grain():
            del sys.modules[name]
        sys.modules.update(real)
        sys.meta_path[:] = [
            finder
            for finder in sys.meta_path
            if not isinstance(finder, grain_names._Finder)
        ]
        sys.path[:], sys.argv = path, argv
        os.environ.pop("GRISTMILL_DROP_IN", None)
        if asked is not None:
            os.environ["GRISTMILL_DROP_IN"] = asked


@contextlib.contextmanager
def as_without_metrics():
    """Undo the effect of examples that start to record metrics."""
    try:
        yield
    finally:
        monitoring._metrics.clear()
        registry = importlib.import_module("prometheus_client").REGISTRY
        registry.unregister(monitoring._collector)


APART = {
    "gristmill.drop_in": as_without_grain,
    "gristmill.monitoring": as_without_metrics,
}


class Finder(doctest.DocTestFinder):
    def _from_module(self, module, object):
        # A decorated function belongs to the module that defines it.
        return super()._from_module(module, inspect.unwrap(object))


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    for listed in dir(module):
        getattr(module, listed, None)  # Some names exist only after the first access.
    names = {**vars(module), "np": np, "grain": gristmill, "gristmill": gristmill}
    try:
        with APART.get(name, contextlib.nullcontext)():
            for test in Finder().find(module, globs=names):
                doctest.DebugRunner().run(test)
    except doctest.UnexpectedException as raised:
        raise raised.exc_info[1] from None
    except doctest.DocTestFailure as failure:
        source, example = failure.example.source, failure.test.name
        pytest.fail(f"{example}: {source}gives {failure.got}not {failure.example.want}")
