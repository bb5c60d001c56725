"""Tests that BlendedDataSource serves the samples of Megatron's BlendedDataset."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import _core, sources
from gristmill.sources import _gpt_order
from support import extras
from support.megatron_samples import PAD, assert_same, build_theirs
from support.token_files import write_megatron

helpers = extras.megatron("datasets.helpers_cpp")

NOWHERE = _core.ArrayPlace(0, [], "")


def theirs_of(size, build):
    parts, numbers = np.zeros(size, np.int16), np.zeros(size, np.int64)
    build(parts, numbers)
    return parts.tolist(), numbers.tolist()


def ours_of(blend):
    return tuple(array.tolist() for array in blend.find(np.arange(len(blend))))


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20), st.integers(0, 3000))
@settings(max_examples=100, deadline=None)
def test_weighted_order_equals_megatrons(weights, size):
    weights = _gpt_order.normalize(weights)
    expected = theirs_of(
        size,
        lambda parts, numbers: helpers.build_blending_indices(
            parts, numbers, weights, len(weights), size, False
        ),
    )
    blend = _core.Blend.weighted(weights, size, NOWHERE)
    assert ours_of(blend) == expected
    assert blend.counts == np.bincount(expected[0], minlength=len(weights)).tolist()


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_exhaustive_order_equals_megatrons(sizes):
    expected = theirs_of(
        sum(sizes),
        lambda parts, numbers: helpers.build_exhaustive_blending_indices(
            parts, numbers, np.array(sizes), len(sizes)
        ),
    )
    blend = _core.Blend.exhaustive(sizes, NOWHERE)
    assert ours_of(blend) == expected
    assert blend.counts == sizes


@pytest.fixture
def prefixes(tmp_path):
    random = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        documents = [random.integers(0, 12, random.integers(1, 30)) for _ in range(20)]
        write_megatron(tmp_path / name, documents, np.uint16)
    return [str(tmp_path / name) for name in ("a", "b", "c")]


@pytest.mark.parametrize(
    ("weights", "num_samples"),
    [([0.5, 0.2, 0.3], 100), (None, 50), (None, None), (None, 10_000)],
)
def test_blend_matches_megatrons_builder(prefixes, weights, num_samples):
    theirs, _, _ = build_theirs(
        prefixes, weights, num_samples, "1", random_seed=7, sequence_length=8
    )
    documents = [sources.MegatronDataSource(prefix) for prefix in prefixes]
    ours = sources.BlendedDataSource.build(
        documents, weights, num_samples, 8, seed=7, split="1", pad_id=PAD
    )
    assert_same(ours, theirs)


def samples_of(prefix, **options):
    return sources.GPTDataSource(
        sources.MegatronDataSource(prefix), 8, seed=1, **options
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_loader_serves_a_blend(prefixes, workers):
    blend = sources.BlendedDataSource([*map(samples_of, prefixes)])
    loader = gristmill.DataLoader(
        data_source=blend,
        sampler=gristmill.SequentialSampler(len(blend)),
        operations=[gristmill.Batch(3, drop_remainder=True)],
        worker_count=workers,
    )
    batch = next(iter(loader))
    assert batch["tokens"].shape == (3, 8)
    assert batch["dataset_id"].tolist() == [
        int(blend[i]["dataset_id"]) for i in (0, 1, 2)
    ]
    assert batch["dataset_id"].dtype == np.int16


def test_large_index_is_saved_and_pickled(prefixes, tmp_path):
    parts = [samples_of(prefix, num_samples=70_000) for prefix in prefixes]
    blend = sources.BlendedDataSource(parts, [1, 1, 1], 200_000)
    again = pickle.loads(pickle.dumps(blend))
    assert again[199_999]["tokens"].tolist() == blend[199_999]["tokens"].tolist()
    assert repr(again) == repr(blend)
    # `again` waited until the file was complete.
    names = [path.name for path in tmp_path.glob(".a.*.gristmill-index")]
    assert len(names) == 1


def test_bad_arguments_are_refused(prefixes):
    part = samples_of(prefixes[0])
    blend = sources.BlendedDataSource
    with pytest.raises(ValueError, match="at least one source, got none"):
        blend([])
    with pytest.raises(TypeError, match="only GPTDataSources, got MegatronDataSource"):
        blend([sources.MegatronDataSource(prefixes[0])])
    with pytest.raises(ValueError, match="one number for each source, got 2 for 1"):
        blend([part], [1, 2])
    with pytest.raises(ValueError, match=r"weights must be positive, got -1\."):
        blend([part], [-1], 3)
    with pytest.raises(ValueError, match="positive whole numbers, got 0"):
        blend([part], [0.5])
    with pytest.raises(ValueError, match="a finite number, got nan"):
        blend([part], [float("nan")], 3)
    with pytest.raises(ValueError, match=r"at least the 1000 samples .* got 3\d\."):
        blend([part], [1], 1000)
    with pytest.raises(ValueError, match=r"size must be >= 0, got -1\."):
        blend([part], [1], -1)
    with pytest.raises(ValueError, match="num_samples must be an int, because weights"):
        blend.build([part.source], [1], None, 8, seed=1)
    with pytest.raises(ValueError, match=r"at most 2\*\*56 samples, got"):
        blend([part], [1], 2**70)


@pytest.mark.parametrize(
    ("weights", "num_samples", "options", "error", "match"),
    [
        ([1, 2], 10, {}, ValueError, "one number for each source, got 2 for 1"),
        ([0], 10, {}, ValueError, r"weights must be positive, got 0\."),
        ([1], -5, {}, ValueError, r"num_samples must be >= 0, got -5\."),
        ([1], 1.5, {}, TypeError, r"num_samples must be an int, got float\."),
        ([1], 10, {"surplus": -1}, ValueError, r"surplus must be >= 0, got -1\."),
        ([1], 10, {"surplus": float("nan")}, ValueError, "a finite number, got nan"),
    ],
)
def test_bad_arguments_of_build_are_refused(
    prefixes, weights, num_samples, options, error, match
):
    source = sources.MegatronDataSource(prefixes[0])
    with pytest.raises(error, match=match):
        sources.BlendedDataSource.build(
            [source], weights, num_samples, 8, seed=1, **options
        )
