"""Tests that states match torchdata's, and that each loader loads the other's."""

import copy
import itertools

import pytest
import torch
import torchdata.stateful_dataloader
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.torch import StatefulDataLoader
from torch_loader.stateful_zoo import DATASETS, SAMPLERS, STREAMS
from torch_loader.watched import canonical

OURS = StatefulDataLoader
THEIRS = torchdata.stateful_dataloader.StatefulDataLoader
MOST = 40

pytestmark = pytest.mark.filterwarnings(
    "ignore:'set_vital' is deprecated:UserWarning",
    "ignore:Neither the dataset nor its iterator:UserWarning",
    "ignore:This DataLoader will create:UserWarning",
)


def built(loader_class, case):
    dataset, sampler, options = case
    options = {**SAMPLERS[sampler](), **dict(options)}
    if options.get("num_workers"):
        options["multiprocessing_context"] = "fork"
    return loader_class(DATASETS[dataset](), **options)


def taken(batches, count=MOST):
    return [canonical(batch) for batch in itertools.islice(batches, count)]


def saved(loader_class, case, count):
    """Return a state after `count` batches, and the rest of its epoch and the next."""
    torch.manual_seed(5)
    loader = built(loader_class, case)
    batches = iter(loader)
    taken(batches, count)
    state = loader.state_dict()
    if state["_iterator_finished"]:
        return state, [taken(loader), taken(loader)]
    return state, [taken(batches), taken(loader)]


def resumed(loader_class, case, state):
    """Return the two epochs of a new loader that loaded a state."""
    loader = built(loader_class, case)
    loader.load_state_dict(state)
    return [taken(loader), taken(loader)]


@st.composite
def cases(draw, workers):
    stream = draw(st.booleans())
    dataset = draw(st.sampled_from(STREAMS if stream else ["items", "counting"]))
    plain = [name for name in SAMPLERS if name.startswith("none")]
    sampler = draw(st.sampled_from(plain if stream else list(SAMPLERS)))
    options = {}
    if workers:
        options = {
            "num_workers": draw(st.integers(1, workers)),
            "prefetch_factor": draw(st.integers(1, 3)),
            "persistent_workers": draw(st.booleans()),
            "snapshot_every_n_steps": draw(st.integers(1, 4)),
        }
    return dataset, sampler, tuple(options.items())


def assert_like_torchdata(case, count):
    ours, theirs = saved(OURS, case, count), saved(THEIRS, case, count)
    assert ours[1] == theirs[1]
    expected = resumed(THEIRS, case, theirs[0])
    assert resumed(THEIRS, case, ours[0]) == expected
    # torchdata's loader loses an epoch if a sampler is restored at its end.
    right = (expected, theirs[1])
    assert resumed(OURS, case, ours[0]) in right
    assert resumed(OURS, case, theirs[0]) in right


@pytest.mark.parametrize("count", range(13))
@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if "none" in name])
def test_every_dataset_at_every_point_matches_torchdata(dataset, sampler, count):
    assert_like_torchdata((dataset, sampler, ()), count)


@pytest.mark.parametrize("count", range(13))
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_at_every_point_matches_torchdata(sampler, count):
    assert_like_torchdata(("items", sampler, ()), count)


@given(cases(workers=3), st.integers(0, 12))
@settings(max_examples=8)
def test_random_loaders_with_workers_match_torchdata(case, count):
    assert_like_torchdata(case, count)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("dataset", "sampler"),
    [
        ("items", "none"),
        ("items", "none, no batches"),
        ("items", "stateful"),
        ("items", "stateful batches"),
        ("items", "iterators"),
        ("items", "batches"),
        ("counting", "none"),
        ("numbers", "none"),
        ("stateful numbers", "none"),
        ("own iterator", "none, no batches"),
        ("both", "none"),
    ],
)
def test_state_layout_matches_torchdata(dataset, sampler, workers):
    options = {"num_workers": workers}
    if workers:
        options["snapshot_every_n_steps"] = 2
    found = []
    for loader_class in (OURS, THEIRS):
        torch.manual_seed(1)
        loader = built(loader_class, (dataset, sampler, tuple(options.items())))
        batches = iter(loader)
        states = [loader.state_dict()]
        for _ in itertools.takewhile(lambda batch: batch is not None, batches):
            states.append(copy.deepcopy(loader.state_dict()))
        states.append(loader.state_dict())
        found.append([without_addition(state) for state in states])
    assert found[0] == found[1]


def without_addition(state):
    """Remove the entries that torchdata's states do not have."""
    state.pop("_generators", None)
    main = state.get("_snapshot", {}).get("_main_snapshot", state)
    if set(main["_index_sampler_state"] or ()) == {"samples_yielded"}:
        main["_index_sampler_state"] = None
    return state
