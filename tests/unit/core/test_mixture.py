"""Compares _core.Mixture with grain.MapDataset.mix."""

import pickle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill import _core

grain = pytest.importorskip("grain")
mix = pytest.importorskip("grain._src.python.dataset.transformations.mix")
Mixture = _core.Mixture

POSITIONS = st.lists(
    st.integers(-(10**15), 10**15) | st.integers(-100, 1000), min_size=1, max_size=60
)


class Indices(grain.MapDataset):
    """An endless dataset that returns (component, requested index)."""

    def __init__(self, component):
        super().__init__()
        self._component = component

    def __len__(self):
        return 2**62

    def __getitem__(self, index):
        return self._component, index


def pairs(mixture, positions):
    components, taken = mixture.take(np.array(positions, np.int64))
    return list(zip(components.tolist(), taken.tolist(), strict=True))


@settings(deadline=None)
@given(
    weights=st.lists(st.floats(0.001, 1) | st.integers(1, 9), min_size=1, max_size=9),
    positions=POSITIONS,
)
@example([0.7, 0.3], list(range(15)))
@example([1, 2, 3], list(range(-6, 12)))
@example([1e-7, 1, 0.3], [10**15, -(10**15), 12345678])
def test_mixture_equals_mix_of_grain(weights, positions):
    scale = 100 / min(weights)
    ours = Mixture([int(weight * scale) for weight in weights])
    parts = [Indices(component) for component in range(len(weights))]
    theirs = grain.MapDataset.mix(parts, weights)
    assert pairs(ours, positions) == [theirs[position] for position in positions]


@settings(deadline=None)
@given(
    proportions=st.lists(
        st.integers(1, 9) | st.integers(1, 10**4) | st.integers(1, 2**58),
        min_size=1,
        max_size=12,
    ),
    positions=POSITIONS | st.lists(st.integers(-(2**63), 2**63 - 1)),
)
def test_mixture_equals_rule_of_grain(proportions, positions):
    rule = mix._dataset_and_key_of_next_element
    expected = [rule(position, tuple(proportions)) for position in positions]
    assert pairs(Mixture(proportions), positions) == expected


def test_equal_proportions_alternate():
    components, positions = Mixture([1] * 5).take(np.arange(10))
    assert components.tolist() == [0, 1, 2, 3, 4] * 2
    assert positions.tolist() == [0] * 5 + [1] * 5


def test_large_blocks_equal_small_ones():
    mixture = Mixture([300, 70, 1211])
    positions = np.arange(-5000, 15000, 2)
    components, taken = mixture.take(positions)
    for first in range(0, 10000, 100):
        part = mixture.take(positions[first : first + 100])
        assert np.array_equal(part[0], components[first : first + 100])
        assert np.array_equal(part[1], taken[first : first + 100])
    assert positions[0] == -5000


def test_pickled_mixture_equals_original():
    mixture = Mixture([300, 100])
    again = pickle.loads(pickle.dumps(mixture))
    assert pairs(again, range(9)) == pairs(mixture, range(9))


@pytest.mark.parametrize(
    ("proportions", "error", "text"),
    [
        ([], ValueError, "at least one item, got none"),
        ([1, 0], ValueError, "proportions must be positive, got 0"),
        ([1, -4], ValueError, "proportions must be positive, got -4"),
        ([2**62, 2**62], OverflowError, "sum of proportions must fit into 64 bits"),
        ([2**63], TypeError, "proportions"),
        ([0.5, 0.5], TypeError, "proportions"),
    ],
)
def test_wrong_proportions_raise(proportions, error, text):
    with pytest.raises(error, match=text):
        Mixture(proportions)


def test_wrong_positions_raise():
    mixture = Mixture([1, 2])
    with pytest.raises(TypeError):
        mixture.take(np.zeros(3))
    with pytest.raises(ValueError, match="positions must have one dimension, got 0"):
        mixture.take(np.zeros((), np.int64))
