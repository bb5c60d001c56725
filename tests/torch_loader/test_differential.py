"""Tests that our loader without workers behaves exactly like torch's."""

import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.torch import DataLoader
from torch_loader.datasets_zoo import COLLATIONS, DATASETS, SAMPLERS
from torch_loader.watched import Case, seen

STREAMS = [name for name in DATASETS if "stream" in name]
MAPS = [name for name in DATASETS if name not in STREAMS]


def assert_equal(case):
    assert seen(DataLoader, case) == seen(torch.utils.data.DataLoader, case)


@st.composite
def cases(draw):
    """Return a strategy for loaders, including some with invalid arguments."""
    how = draw(st.sampled_from(["shuffle", "sampler", "batch_sampler", "plain"]))
    options = {}
    if how == "shuffle":
        options["shuffle"] = draw(st.booleans())
    if how != "batch_sampler" or draw(st.integers(0, 9)) == 0:
        options["batch_size"] = draw(st.sampled_from([None, 1, 2, 3, 5, 64, 0, True]))
        if options["batch_size"] is not None or draw(st.integers(0, 9)) == 0:
            options["drop_last"] = draw(st.booleans())
    if draw(st.integers(0, 9)) == 0:
        options["pin_memory"] = True
    return Case(
        dataset=draw(st.sampled_from(MAPS)),
        size=draw(st.integers(1, 12)),
        sampler=draw(st.sampled_from(list(SAMPLERS))) if how == "sampler" else None,
        batch_sampler=(
            draw(st.sampled_from(list(SAMPLERS))) if how == "batch_sampler" else None
        ),
        collate_fn=draw(st.none() | st.sampled_from(list(COLLATIONS))),
        generator=draw(st.booleans()),
        options=tuple(options.items()),
        stops=draw(st.tuples(st.none() | st.integers(1, 4), st.none())),
        asks_length=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32)),
    )


@given(cases())
@settings(max_examples=200)
def test_random_loaders_match_torch(case):
    assert_equal(case)


@pytest.mark.parametrize("dataset", MAPS)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [4, None])
def test_every_dataset_matches_torch(dataset, shuffle, batch_size):
    options = (("shuffle", shuffle), ("batch_size", batch_size))
    assert_equal(Case(dataset, options=options, seed=7))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("argument", ["sampler", "batch_sampler"])
@pytest.mark.parametrize("dataset", ["tensors", "ints"])
@pytest.mark.parametrize("generator", [False, True])
def test_every_sampler_matches_torch(sampler, argument, dataset, generator):
    options = (("batch_size", 3),) if argument == "sampler" else ()
    case = Case(dataset, generator=generator, options=options, **{argument: sampler})
    assert_equal(case)


@pytest.mark.parametrize("dataset", STREAMS)
@pytest.mark.parametrize("batch_size", [None, 1, 3, 20])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("asks_length", [False, True])
def test_every_stream_matches_torch(dataset, batch_size, drop_last, asks_length):
    options = (("batch_size", batch_size), ("drop_last", drop_last))
    assert_equal(Case(dataset, options=options, asks_length=asks_length))


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"timeout": 3},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"multiprocessing_context": "fork"},
        {"batch_size": 2.0},
        {"drop_last": "yes"},
        {"drop_last": True, "batch_size": None},
        {"shuffle": True, "sampler": [1]},
        {"shuffle": True, "batch_sampler": [[1]]},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"pin_memory": True, "pin_memory_device": "cuda"},
        {"num_workers": 1000, "prefetch_factor": -1},
    ],
    ids=str,
)
@pytest.mark.parametrize("dataset", ["ints", "stream"])
def test_wrong_arguments_match_torch(options, dataset):
    assert_equal(Case(dataset, options=tuple(options.items())))


def test_empty_dataset_matches_torch():
    assert_equal(Case("ints", size=0, options=(("shuffle", True),)))
    assert_equal(Case("ints", size=0))
