"""StopIteration of user code, in Gristmill and in Grain."""

import importlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from differential.pipelines import OURS, THEIRS, ready

RECORDS = 30
# Four steps that each give up to four elements for one.
MOST = RECORDS * 4**4 + 1


class Stopping:
    """A source of numbers that stops before its length."""

    def __init__(self, stop):
        self._stop = stop

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        if index >= self._stop:
            raise StopIteration
        return np.int64(index)

    def __repr__(self):
        return f"Stopping({self._stop})"


def operation(library, kind, number):
    """Return a library's operation of a given kind."""
    legacy = ready(library)
    split = importlib.import_module(library).experimental.FlatMapTransform

    class Filter(legacy.FilterTransform):
        def filter(self, element):
            return bool(np.sum(element) % (number + 1))

    class Double(legacy.MapTransform):
        def map(self, element):
            return 2 * element

    class Split(split):
        max_fan_out = number

        def flat_map(self, element):
            return [element] * (int(np.sum(element)) % (number + 1))

    if kind == "batch":
        return legacy.Batch(number)
    if kind == "whole batch":
        return legacy.Batch(number, drop_remainder=True)
    return {"filter": Filter, "map": Double, "split": Split}[kind]()


def run(iterator):
    """Return the elements, the states around them, and whether an error ended them."""
    elements, states = [], [json.loads(iterator.get_state())]
    try:
        for element in iterator:
            elements.append(np.asarray(element).tolist())
            states.append(json.loads(iterator.get_state()))
            assert len(elements) < MOST
    except ValueError:  # A batch of batches of different sizes.
        return elements, states, True
    return elements, [*states, json.loads(iterator.get_state())], False


KINDS = ["map", "filter", "split", "batch", "whole batch"]


@given(
    stop=st.integers(0, RECORDS),
    steps=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 4)), max_size=4),
)
@settings(max_examples=60)
def test_stopping_source_gives_the_elements_of_grain(stop, steps):
    def made(library):
        legacy = ready(library)
        return iter(
            legacy.DataLoader(
                data_source=Stopping(stop),
                sampler=legacy.SequentialSampler(
                    RECORDS, shard_options=legacy.NoSharding()
                ),
                operations=[operation(library, *step) for step in steps],
                read_options=legacy.ReadOptions(0, 0),
            )
        )

    assert run(made(OURS)) == run(made(THEIRS))


def stops_at(bad):
    """Return a function that raises StopIteration for one number."""

    def function(x):
        if x == bad:
            raise StopIteration
        return x

    return function


@pytest.mark.claim("StopIteration in a step ends the data, or the data of one worker")
def test_stopping_step_is_an_error_in_gristmill():
    def made(library):
        legacy = ready(library)

        class Look(legacy.MapTransform):
            def map(self, element):
                return stops_at(3)(element)

        return legacy.DataLoader(
            data_source=range(6),
            sampler=legacy.SequentialSampler(6, shard_options=legacy.NoSharding()),
            operations=[Look()],
        )

    assert list(made(THEIRS)) == [0, 1, 2]
    with pytest.raises(RuntimeError, match="Look raised StopIteration"):
        list(made(OURS))


@pytest.mark.claim("StopIteration in a step ends the data, or the data of one worker")
@pytest.mark.parametrize("indexed", [True, False])
def test_stopping_step_of_a_chain_is_an_error_in_gristmill(indexed):
    def made(library):
        ready(library)
        ds = importlib.import_module(library).MapDataset.range(6)
        return (ds if indexed else ds.to_iter_dataset()).map(stops_at(3))

    assert list(made(THEIRS)) == [0, 1, 2]
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(made(OURS))


@pytest.mark.claim(
    "If a source raises StopIteration, ZipMapDataset raises RuntimeError"
)
def test_stopping_source_ends_a_zip_in_gristmill():
    def made(library):
        ready(library)
        g = importlib.import_module(library)
        source = g.MapDataset.source(Stopping(2))
        return g.experimental.ZipMapDataset([source, source])

    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        list(made(THEIRS).to_iter_dataset())
    assert list(made(OURS).to_iter_dataset()) == [(0, 0), (1, 1)]
