"""Actors get the program's settings and cannot start workers of their own."""

import importlib
import sys

import jax
import numpy as np
import pytest

import gristmill as g
from gristmill.errors import WorkerDied
from gristmill.ray import RayWorkers

pytestmark = pytest.mark.usefixtures("cluster")

MODULE = __name__.replace("test_starts", "iterates_when_imported")


class Settings(g.MapTransform):
    def map(self, element):
        return (
            str(jax.numpy.ones(1).dtype),
            np.geterr()["divide"],
            sys.getrecursionlimit(),
        )


class Iterate(g.MapTransform):
    def __init__(self, *options):
        self.options = options

    def map(self, element):
        return list(g.load(range(2), num_epochs=1, **self.options[element]))


def test_actors_have_the_settings_of_the_program():
    limit = sys.getrecursionlimit() + 1
    sys.setrecursionlimit(limit)
    try:
        with np.errstate(divide="raise"), jax.enable_x64(True):
            [found] = g.load(
                range(1),
                num_epochs=1,
                transformations=[Settings()],
                workers=RayWorkers(1),
            )
    finally:
        sys.setrecursionlimit(limit - 1)
    assert found == ("float64", "raise", limit)


def test_worker_init_fn_runs_in_each_actor():
    told = []
    loader = g.load(
        range(20),
        num_epochs=1,
        transformations=[g.Batch(1, batch_fn=lambda elements: told[-1])],
        workers=RayWorkers(2),
        worker_init_fn=lambda worker, workers: told.append((worker, workers)),
    )
    assert {*loader} <= {(0, 2), (1, 2)}


def test_module_iterating_on_import_in_an_actor_is_refused():
    where = rf"{MODULE} \(\S+, line 15\) iterates a loader with workers when it is"
    with pytest.raises(WorkerDied, match=where):
        importlib.import_module(MODULE)


def test_loader_inside_an_actor_has_no_workers():
    step = Iterate({}, {"worker_count": 1}, {"workers": RayWorkers(1)})
    iterator = iter(
        g.load(range(3), num_epochs=1, transformations=[step], workers=RayWorkers(1))
    )
    assert next(iterator) == [0, 1]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="iterates a loader with workers in a"):
            next(iterator)
