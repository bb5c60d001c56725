"""Window shuffles permute windows of consecutive elements."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill.experimental import WindowShuffleIterDataset, WindowShuffleMapDataset
from support.twins import assert_twins, grain

SEEDS = st.sampled_from([0, 1, 42, 2**32 - 30])


@given(st.integers(1, 9), st.integers(1, 5), SEEDS)
@settings(max_examples=12)
def test_windows_of_map_datasets_match_grain(window, windows, seed):
    def make(lib):
        numbers = lib.MapDataset.range(window * windows)
        return lib.experimental.WindowShuffleMapDataset(
            numbers, window_size=window, seed=seed
        )

    ours, theirs = make(gristmill), make(grain())
    indices = range(-window, 2 * window * windows)
    if seed == 0:
        indices = indices[window:]
    expected = [theirs[i] for i in indices]
    assert [ours[i] for i in indices] == expected
    assert ours._getitems(list(indices)) == expected


@given(st.integers(1, 9), st.integers(0, 20), SEEDS)
@settings(max_examples=12)
def test_windows_of_iter_datasets_match_grain(window, length, seed):
    def make(lib):
        numbers = lib.MapDataset.range(length + 3).to_iter_dataset()
        return lib.experimental.WindowShuffleIterDataset(
            numbers.filter(lambda x: x % 7 < 5), window_size=window, seed=seed
        )

    assert_twins(make, theirs_resume=False)


@pytest.mark.claim(
    "WindowShuffleMapDataset repeats and loses elements if the window does "
    "not divide the length"
)
def test_epoch_is_a_permutation():
    """Grain's last window reaches into the next epoch."""
    ds = WindowShuffleMapDataset(gristmill.MapDataset.range(10), window_size=4, seed=1)
    assert list(ds)[:8] == [1, 2, 3, 0, 4, 7, 5, 6]
    for epoch in range(3):
        assert sorted(ds[10 * epoch + i] for i in range(10)) == list(range(10))


def test_stream_order_is_fixed():
    ds = gristmill.MapDataset.range(10).to_iter_dataset()
    ds = WindowShuffleIterDataset(ds, window_size=4, seed=1)
    assert list(ds) == [0, 3, 2, 1, 6, 5, 7, 4, 9, 8]


def test_window_shuffle_of_endless_shuffle():
    endless = gristmill.MapDataset.range(6).shuffle(seed=1).repeat()
    ds = WindowShuffleMapDataset(endless, window_size=3, seed=2)
    assert sorted(ds[i] for i in range(6)) == list(range(6))


def test_seed_beyond_32_bits_is_rejected():
    numbers = gristmill.MapDataset.range(4)
    with pytest.raises(TypeError):
        list(WindowShuffleMapDataset(numbers, window_size=2, seed=2**32 - 1))
    iterator = iter(
        WindowShuffleIterDataset(
            numbers.to_iter_dataset(), window_size=2, seed=2**32 - 1
        )
    )
    assert sorted([next(iterator), next(iterator)]) == [0, 1]
    with pytest.raises(TypeError):
        next(iterator)


def test_window_size_must_be_positive():
    numbers = gristmill.MapDataset.range(4)
    with pytest.raises(ValueError, match=r"window_size must be positive. Got 0"):
        WindowShuffleMapDataset(numbers, window_size=0, seed=1)
    with pytest.raises(ValueError, match=r"window_size must be positive. Got -1"):
        WindowShuffleIterDataset(numbers.to_iter_dataset(), window_size=-1, seed=1)


def test_error_drops_no_other_element_of_its_window():
    def fail_at_five(x):
        if x == 5:
            raise RuntimeError(x)
        return x

    numbers = gristmill.MapDataset.range(12).to_iter_dataset().map(fail_at_five)
    ds = WindowShuffleIterDataset(numbers, window_size=4, seed=1)
    iterator = iter(ds)
    first = [next(iterator) for _ in range(4)]
    with pytest.raises(RuntimeError):
        next(iterator)
    second = [next(iterator) for _ in range(2)]
    resumed = iter(ds)
    resumed.set_state(iterator.get_state())
    rest = list(iterator)
    assert sorted(first + second + rest) == [x for x in range(12) if x != 5]
    assert list(resumed) == rest


def test_arrays_are_not_copied():
    rows = [np.full(2, i) for i in range(4)]
    ds = gristmill.MapDataset.source(rows).to_iter_dataset()
    found = list(WindowShuffleIterDataset(ds, window_size=4, seed=1))
    assert {id(row) for row in found} == {id(row) for row in rows}


def test_names():
    numbers = gristmill.MapDataset.range(4)
    ds = WindowShuffleIterDataset(numbers.to_iter_dataset(), window_size=2, seed=1)
    assert f"{ds}" == "WindowShuffleIterDataset"
    assert str(iter(ds)) == "WindowShuffleDatasetIterator"
