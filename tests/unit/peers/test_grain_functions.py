"""Tests that functions of Grain's internal modules behave like Grain's."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill._dataset.nodes.batch import make_batch
from gristmill._dataset.nodes.mix import MixedMapDataset
from gristmill._peers import grain as names
from gristmill.multiprocessing import SharedMemoryArray
from support.elements import same

grain = pytest.importorskip("grain")

from grain._src.python.dataset.transformations import batch, mix  # noqa: E402


def test_worker_count_defaults_to_number_of_cores():
    assert names.determine_worker_count(input_worker_count=None) == os.cpu_count()
    assert names.determine_worker_count(3) == 3


LEAVES = {
    "int": lambda i: i,
    "float": lambda i: np.float32(i),
    "array": lambda i: np.full((2, 3), i, np.int16),
    "text": lambda i: "x" * (i + 1),
    "bytes": lambda i: np.bytes_(b"y" * (i + 1)),
    "object": lambda i: np.array([{i}, None], object),
}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", LEAVES)
def test_make_batch_matches_grain(kind, count, shared):
    values = [{"x": LEAVES[kind](i), "y": (i,)} for i in range(count)]
    made = [
        each.make_batch(values=values, output_to_shared_memory=shared)
        for each in (batch, gristmill._dataset.nodes.batch)
    ]
    theirs, ours = made
    for leaves in ((theirs["x"], ours["x"]), (theirs["y"][0], ours["y"][0])):
        is_shared = [type(leaf).__name__ == "SharedMemoryArray" for leaf in leaves]
        assert is_shared[0] == is_shared[1]
        assert same(*(np.asarray(leaf) for leaf in leaves))
        for leaf, named in zip(leaves, is_shared, strict=True):
            if named:
                leaf.unlink_on_del()


def test_make_batch_of_no_values_is_an_error():
    for function in (batch.make_batch, make_batch):
        with pytest.raises(ValueError, match="Cannot batch 0 values"):
            function([])


def test_spec_of_make_batch_is_known():
    ds = gristmill.MapDataset.range(4).batch(2, batch_fn=make_batch)
    assert gristmill.experimental.get_element_spec(ds).shape == (None,)
    assert type(make_batch([1, 2], output_to_shared_memory=True)) is SharedMemoryArray


class Listed:
    """A selection map defined by a list."""

    def __init__(self, chosen):
        self.chosen = chosen

    def __len__(self):
        return len(self.chosen)

    def __getitem__(self, index):
        return self.chosen[index % len(self.chosen)]

    def __repr__(self):
        return f"Listed({self.chosen})"


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20)), min_size=1))
@settings(max_examples=20)
def test_mixture_with_selection_map_matches_grain(chosen):
    made = []
    for library, mixed in ((grain, mix.MixedMapDataset), (gristmill, MixedMapDataset)):
        parts = [library.MapDataset.range(5), library.MapDataset.range(10, 13)]
        made.append(mixed(parts, selection_map=Listed(chosen)))
    theirs, ours = made
    assert len(theirs) == len(ours)
    positions = range(2 * len(chosen))
    assert [theirs[i] for i in positions] == [ours[i] for i in positions]
    assert list(theirs) == list(ours)
    # Our `str` also shows the parents, so the test compares `format`.
    assert (f"{theirs}", repr(theirs)) == (f"{ours}", repr(ours))


def test_mixture_with_selection_map_refuses_weights():
    for library, mixed in ((grain, mix.MixedMapDataset), (gristmill, MixedMapDataset)):
        parts = [library.MapDataset.range(5), library.MapDataset.range(3)]
        with pytest.raises(ValueError, match="Cannot set both proportions and"):
            mixed(parts, [1, 2], Listed([(0, 1)]))
        with pytest.raises((TypeError, AttributeError)):
            mixed(parts, selection_map=3)


def test_stats_have_execution_summary():
    options = gristmill.experimental.DatasetOptions(
        execution_tracking_mode=gristmill.experimental.ExecutionTrackingMode.STAGE_TIMING
    )
    ds = gristmill.MapDataset.range(30).to_iter_dataset().map(str)
    iterator = iter(ds.set_options(options))
    next(iterator)
    summary = iterator._stats._get_execution_summary()
    assert summary.nodes[0].num_produced_elements == 1
    with pytest.raises(ValueError, match="execution_tracking_mode"):
        iter(ds)._stats._get_execution_summary()


@pytest.mark.multiprocess
def test_multiprocess_prefetch_runs_chain_in_workers():
    chain = gristmill.MapDataset.range(6).to_iter_dataset()
    assert names.multiprocess_prefetch(chain) is chain
    workers = names.multiprocess_prefetch(chain, num_workers=2, buffer_size=1)
    assert list(workers) == list(range(6))


def test_datasets_and_iterators_match_grain_protocols():
    parts = [gristmill.MapDataset.range(3)]
    ds = gristmill.experimental.InterleaveIterDataset(parts, cycle_length=1)
    assert isinstance(ds, names.SupportsInPlaceSlicing)
    assert isinstance(iter(ds), names.SupportsSlicedStateManagement)
    assert not isinstance(parts[0], names.SupportsSlicedStateManagement)
