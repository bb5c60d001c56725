"""Compares _core.window_shuffle and permutation with Grain's window shuffles."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill import _core

grain = pytest.importorskip("grain")
experimental = pytest.importorskip("grain.experimental")

SEEDS = st.integers(10_000, 2**32 - 10_000)


class Indices(grain.MapDataset):
    """A dataset whose elements are the requested indices, not reduced to an epoch."""

    def __init__(self, count):
        super().__init__()
        self._count = count

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        return index


def grains(count, window_size, seed):
    return experimental.WindowShuffleMapDataset(
        Indices(count), window_size=window_size, seed=seed
    )


# Small windows are slow in Grain: few examples and no deadline.
@settings(deadline=None, max_examples=60)
@given(
    windows=st.integers(1, 4),
    window_size=st.integers(1, 9) | st.integers(20_000, 65_000),
    seed=SEEDS,
    positions=st.lists(st.integers(-999, 9999), max_size=8),
)
@example(2, 4, 2**32 - 1, [0, 3])
def test_whole_windows_equal_grain(windows, window_size, seed, positions):
    length = windows * window_size
    theirs = grains(length, window_size, seed)
    ours = _core.window_shuffle(
        np.array(positions, np.int64), window_size, seed, length
    )
    assert ours.tolist() == [theirs[position] for position in positions]


@pytest.mark.claim(
    "WindowShuffleMapDataset repeats and loses elements if the window does "
    "not divide the length"
)
@settings(deadline=None, max_examples=30)
@given(length=st.integers(1, 60), window_size=st.integers(1, 70), seed=SEEDS)
def test_whole_windows_of_first_epoch_equal_grain(length, window_size, seed):
    theirs = grains(length, window_size, seed)
    ours = _core.window_shuffle(np.arange(length), window_size, seed, length)
    whole = length // window_size * window_size
    assert ours[:whole].tolist() == [theirs[i] for i in range(whole)]
    rest = length - whole
    assert ours[whole:].tolist() == [
        whole + experimental.index_shuffle(i, rest - 1, seed + whole // window_size, 4)
        for i in range(rest)
    ]


@pytest.mark.parametrize("length", [1, 10, 1000])
@pytest.mark.parametrize("window_size", [1, 3, 999, 10**6])
@pytest.mark.parametrize("epoch", [-3, 0, 1])
def test_every_epoch_is_permuted_within_windows(length, window_size, epoch):
    begin = epoch * length
    positions = np.arange(begin, begin + length)
    shuffled = _core.window_shuffle(positions, window_size, 4000, length)
    assert np.array_equal(np.sort(shuffled), positions)
    windows = (positions - begin) // window_size
    assert np.array_equal((shuffled - begin) // window_size, windows)


@pytest.mark.claim(
    "WindowShuffleIterDataset and WindowShuffleMapDataset lose an element in "
    "windows of 4^k + 1, k >= 8"
)
def test_window_of_4_to_k_plus_1_is_permuted():
    shuffled = _core.window_shuffle(np.arange(65537), 65537, 3, 65537)
    assert np.array_equal(np.sort(shuffled), np.arange(65537))


def test_window_shuffle_does_not_change_positions():
    positions = np.arange(20)
    expected = _core.window_shuffle(positions, 6, 1, 20)
    assert positions.tolist() == list(range(20))
    assert np.array_equal(
        _core.window_shuffle(positions[::-2], 6, 1, 20), expected[::-2]
    )


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seed_beyond_32_bits_raises_type_error_like_grain(seed):
    with pytest.raises(TypeError):
        grains(10, 5, seed)[0]
    with pytest.raises(TypeError, match=r"in \[0, 2\*\*32\), .* window 0$"):
        _core.window_shuffle(np.array([0]), 5, seed, 10)


def test_seed_overflow_error_has_window():
    with pytest.raises(TypeError, match=r"window 3$"):
        _core.window_shuffle(np.array([4, 31]), 10, 2**32 - 3, 100)
    with pytest.raises(TypeError, match=r"window -2$"):
        _core.window_shuffle(np.array([-11]), 10, 1, 100)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((np.array([1]), 0, 1, 5), ValueError, "window_size must be positive"),
        ((np.array([1]), 2, 1, 0), ZeroDivisionError, "empty dataset"),
        ((np.array([2**63 - 1]), 2**63 - 1, 0, 2**63 - 1), OverflowError, "64 bits"),
        ((np.zeros((2, 2), np.int64), 2, 1, 5), ValueError, "one dimension"),
        ((np.array([1.0]), 2, 1, 5), TypeError, "positions"),
    ],
)
def test_window_shuffle_wrong_arguments_raise(arguments, error, text):
    with pytest.raises(error, match=text):
        _core.window_shuffle(*arguments)


@settings(deadline=None, max_examples=30)
@given(
    count=st.integers(0, 40) | st.integers(60_000, 65_536),
    seed=st.integers(0, 2**32 - 1),
)
def test_permutation_equals_index_shuffle(count, seed):
    ours = _core.permutation(count, seed)
    assert np.array_equal(np.sort(ours), np.arange(count))
    for index in range(0, count, 1 + count // 20):
        assert ours[index] == experimental.index_shuffle(index, count - 1, seed, 4)


@settings(deadline=None, max_examples=10)
@given(count=st.integers(1, 30), window_size=st.integers(1, 12), seed=SEEDS)
def test_permutation_equals_windows_of_grain_iterator(count, window_size, seed):
    parent = grain.MapDataset.range(count).to_iter_dataset()
    theirs = experimental.WindowShuffleIterDataset(
        parent, window_size=window_size, seed=seed
    )
    ours = []
    for window, first in enumerate(range(0, count, window_size)):
        size = min(window_size, count - first)
        order = _core.permutation(size, seed + window)[::-1]
        ours += (first + order).tolist()
    assert ours == list(theirs)


@pytest.mark.claim(
    "WindowShuffleIterDataset and WindowShuffleMapDataset lose an element in "
    "windows of 4^k + 1, k >= 8"
)
@pytest.mark.parametrize("count", [65537, 262145])
def test_permutation_of_4_to_k_plus_1_has_all_positions(count):
    assert np.array_equal(np.sort(_core.permutation(count, 3)), np.arange(count))


def test_permutation_wrong_arguments_raise():
    with pytest.raises(ValueError, match="at least 0, got -1"):
        _core.permutation(-1, 0)
    for seed in (-1, 2**32):
        with pytest.raises(TypeError):
            _core.permutation(3, seed)
