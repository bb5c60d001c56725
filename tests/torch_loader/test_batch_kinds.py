"""Tests that datasets get batches of every kind in the same form as from torch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._torch.indices.requests import pack, unpack
from gristmill.torch import DataLoader, StatefulDataLoader
from torch_loader.batch_kinds import KINDS, UNPICKLABLE, Batches
from torch_loader.datasets_zoo import COLLATIONS
from torch_loader.watched import Case, seen

LOADERS = (DataLoader, StatefulDataLoader)
ASKED = [
    "tensors", "tensor", "vector", "strided", "array int64", "array bool", "matrix",
    "subset", "subset range", "subset negative", "subset array", "subset tensor",
    "subset of list", "subset of subset", "concat", "concat of kinds",
    "subset of concat", "stack", "stack named", "stack of lists", "stack of subsets",
    "subclass", "ints", "range", "dict of samples", "dicts", "together",
    "not together", "tells", "tells together", "hugging face", "hugging face torch",
    "hugging face numpy",
]  # fmt: skip
INDICES = ((0, 2, 4, 6), (3, 2, 1, 0), (5,), (-1, 0), (), (1, 99))


def assert_like_torchs(case):
    expected = seen(torch.utils.data.DataLoader, case)
    for loader_class in LOADERS:
        assert seen(loader_class, case) == expected


def cases(kinds, workers):
    """Return a strategy for loaders with a batch sampler or a sampler."""
    indices = st.lists(st.integers(-2, 9), max_size=5).map(tuple)
    batches = st.lists(
        st.tuples(st.sampled_from(kinds), indices | st.sampled_from(INDICES)),
        max_size=6,
    ).map(lambda pairs: Batches(tuple(pairs)))
    return st.builds(
        built,
        st.sampled_from(["batch_sampler", "sampler", "samples"]),
        batches,
        dataset=st.sampled_from(ASKED),
        size=st.integers(7, 9),
        collate_fn=st.none() | st.sampled_from(list(COLLATIONS)),
        stops=st.sampled_from([(None,), (2, None)]),
        workers=workers,
    )


def built(how, batches, workers, **parts):
    options = {"num_workers": workers} if workers else {}
    if workers:
        options["multiprocessing_context"] = "fork"
    if how == "batch_sampler":
        return Case(batch_sampler=batches, options=tuple(options.items()), **parts)
    options["batch_size"] = 2 if how == "sampler" else None
    return Case(sampler=batches, options=tuple(options.items()), **parts)


@given(cases(list(KINDS), st.just(0)))
@settings(max_examples=200)
def test_random_kinds_without_workers_match_torch(case):
    assert_like_torchs(case)


@pytest.mark.parametrize("dataset", ASKED)
@pytest.mark.parametrize("how", ["batch_sampler", "samples"])
def test_every_kind_without_workers_matches_torch(dataset, how):
    assert_like_torchs(with_all(KINDS, how, 0, dataset))


@pytest.mark.multiprocess
@pytest.mark.parametrize("dataset", ASKED)
def test_every_kind_with_workers_matches_torch(dataset):
    kinds = [kind for kind in KINDS if kind not in UNPICKLABLE]
    assert_like_torchs(with_all(kinds, "batch_sampler", 1, dataset))


def with_all(kinds, how, workers, dataset):
    pairs = tuple((kind, indices) for kind in kinds for indices in INDICES)
    stops = (len(pairs) + 1,)
    return built(how, Batches(pairs), workers, dataset=dataset, stops=stops)


@pytest.mark.multiprocess
@given(
    cases([kind for kind in KINDS if kind not in UNPICKLABLE], st.integers(1, 2)),
)
@settings(max_examples=10)
def test_random_kinds_with_workers_match_torch(case):
    assert_like_torchs(case)


@pytest.mark.parametrize("loader_class", LOADERS)
def test_split_permutation_gives_each_row_once(loader_class):
    rows = torch.utils.data.TensorDataset(torch.arange(10))
    batches = torch.randperm(10).split(4)
    found = list(loader_class(rows, batch_sampler=batches))
    assert [row.tolist() for [row] in found] == [batch.tolist() for batch in batches]


def test_part_of_tensor_is_sent_without_the_rest():
    part = torch.arange(1 << 16).split(4)[5]
    words = pack(part)
    assert len(words) < 100
    assert torch.equal(unpack(words), torch.tensor([20, 21, 22, 23]))
