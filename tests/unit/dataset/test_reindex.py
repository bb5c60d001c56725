"""Datasets at listed indices, as in Grain's development version."""

import itertools
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import MapDataset
from gristmill._dataset.nodes.order import ReindexMapDataset, SliceMapDataset
from gristmill._dataset.nodes.slicing import slice_chain
from support.elements import same

PARENTS = {
    "range": lambda ds: ds,
    "source": lambda ds: MapDataset.source([chr(97 + i) for i in range(len(ds))]),
    "index": lambda ds: ds.map_with_index(lambda i, x: (i, x)),
    "shuffle": lambda ds: ds.shuffle(seed=3),
    "random": lambda ds: ds.random_map(lambda x, rng: x + rng.random(), seed=1),
    "filter": lambda ds: ds.filter(lambda x: x % 3),
    "batch": lambda ds: ds.batch(2),
    "slice": lambda ds: ds[::2].map(lambda x: -x),
    "repeat": lambda ds: ds.shuffle(seed=1).repeat(3),
    "reindex": lambda ds: ds.slice([*range(len(ds))][::-1]),
    "zip": lambda ds: MapDataset.zip([ds, ds.shuffle(seed=2)]),
    "mix": lambda ds: MapDataset.mix([ds, ds.map(lambda x: -x)], [2, 1]),
}
LISTED = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "unsigned": lambda indices: np.array(indices, np.uint32),
    "dataset": MapDataset.source,
}


def parents(length=12):
    """Return each kind of parent dataset over a range, by name."""
    return {name: make(MapDataset.range(length)) for name, make in PARENTS.items()}


@given(st.data())
@settings(max_examples=60)
def test_elements_are_parent_elements_at_the_indices(data):
    parent = parents()[data.draw(st.sampled_from(sorted(PARENTS)))]
    wanted = data.draw(st.lists(st.integers(0, 2 * len(parent)), min_size=1))
    ds = parent.slice(LISTED[data.draw(st.sampled_from(sorted(LISTED)))](wanted))
    assert len(ds) == len(wanted)
    # The second epoch of the list uses the parent's second epoch.
    expected = [parent[epoch * len(parent) + i] for epoch in range(3) for i in wanted]
    positions = range(3 * len(wanted))
    assert same([ds[i] for i in positions], expected)
    assert same(list(ds._getitems(positions)), expected)
    assert same(list(ds.repeat(3)), [each for each in expected if each is not None])


@pytest.mark.parametrize("index", [-1, -13, np.int8(-2)])
def test_negative_indices_count_from_parent_end(index):
    for name, parent in parents().items():
        if name != "random":  # It has no random numbers at negative indices.
            assert same(parent.slice([index])[0], parent[index])


@pytest.mark.parametrize("indices", [[3, 1], np.array([3, 1]), MapDataset.range(2)])
def test_subscripts_may_list_indices(indices):
    for ds in parents().values():
        assert type(ds[indices]) is ReindexMapDataset
        assert same(list(ds[indices]), list(ds.slice(indices)))


def test_range_and_dataset_indices_are_read_lazily():
    ds = MapDataset.range(10).slice(range(0, 10**12, 7))
    assert (len(ds), ds[10**11 + 1]) == (142857142858, 7)
    read = []
    indices = MapDataset.range(9).map(lambda i: read.append(i) or i)
    ds = MapDataset.range(10).slice(indices)
    assert (ds[4], read) == (4, [4])


def test_slices_and_steps_can_follow():
    ds = MapDataset.range(10).slice([3, 1, 4, 1, 5])
    assert type(ds[1:4]) is SliceMapDataset
    assert list(ds[1:4].map(lambda x: 10 * x)) == [10, 40, 10]
    assert [b.tolist() for b in ds.batch(2)] == [[3, 1], [4, 1], [5]]
    assert sorted(ds.shuffle(seed=1)) == [1, 1, 3, 4, 5]
    assert list(MapDataset.range(10).slice([])) == []
    assert list(pickle.loads(pickle.dumps(ds))) == list(ds)


@pytest.mark.parametrize("sequential", [True, False])
def test_streams_divide_the_listed_elements(sequential):
    ds = MapDataset.range(10).slice([3, 1, 4, 1, 5, 9, 2]).to_iter_dataset()
    parts = [list(slice_chain(ds, part, 3, sequential)) for part in range(3)]
    assert sorted(itertools.chain(*parts)) == sorted(ds)
    if sequential:
        assert [*itertools.chain(*parts)] == list(ds)


def test_spec_and_repr_match_grain():
    ds = MapDataset.range(100)
    spec = gristmill.experimental.get_element_spec(ds.slice([1, 2]))
    assert (spec.shape, spec.dtype) == ((), np.int64)
    assert f"{ds.slice([1, 2, 3])}" == "ReindexMapDataset(indices=[1, 2, 3], len=3)"
    expected = "ReindexMapDataset(indices=[0, 1, ..., 8, 9], len=10)"
    assert f"{ds.slice(np.arange(10))}" == expected


@pytest.mark.parametrize(
    ("indices", "error", "text"),
    [
        ([1.5], TypeError, "must be an int or a slice, got 1.5"),
        ([True, False], TypeError, r"np.flatnonzero\(mask\)"),
        ([None], TypeError, "must be an int or a slice, got None"),
        ([[1], [2]], TypeError, r"shape \(2, 1\)"),
        ("12", ValueError, "sl is not a slice: <class 'str'>"),
        ({1: 2}, ValueError, "sl is not a slice: <class 'dict'>"),
    ],
)
def test_invalid_indices_are_rejected(indices, error, text):
    with pytest.raises(error, match=text):
        MapDataset.range(5).slice(indices)


def test_absent_or_invalid_dataset_indices_are_named():
    ds = MapDataset.range(5).slice(MapDataset.source([1, None, 2.5]))
    assert ds[0] == 1
    for index in (1, 2):
        with pytest.raises(TypeError, match="MapDataset"):
            ds[index]


def test_tuple_subscript_is_rejected():
    with pytest.raises(TypeError, match=r"must be an int or a slice, got \(1, 2\)"):
        MapDataset.range(5)[1, 2]


@pytest.mark.parametrize("listed", [[1, 2], range(1, 3), MapDataset.range(1, 3)])
def test_positions_beyond_64_bits_follow_the_parent(listed):
    parent = MapDataset.range(5).repeat().map_with_index(lambda i, x: (i, x))
    ds = parent.slice(listed)
    assert [ds[i] for i in (0, 3)] == [(1, 1), parent[sys.maxsize + 2]]
    assert ds[2 * 10**30] == parent[sys.maxsize * 10**30 + 1]
    assert list(ds.repeat(2)) == [(1, 1), (2, 2), *ds._getitems([2, 3])]


def test_listed_indices_beyond_64_bits_follow_the_parent():
    parent = MapDataset.range(5)
    wide = [2**63, -1, 2**64]
    assert list(parent.slice(wide)) == [parent[i] for i in wide]
