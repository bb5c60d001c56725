"""Tests that leaves of different shapes are padded at their ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.batching import make_batch, padded_batch
from gristmill.errors import ShapeMismatch


@given(
    shapes=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5
    ),
    padding=st.sampled_from([None, 0, -3]),
)
def test_values_are_kept_and_rest_is_padding(shapes, padding):
    rows = [np.full(shape, n + 1, np.int16) for n, shape in enumerate(shapes)]
    batch = padded_batch(rows, padding_values=padding)
    assert batch.dtype == np.int16
    assert batch.shape == (len(rows), *map(max, zip(*shapes, strict=True)))
    for row, made in zip(rows, batch, strict=True):
        high, wide = row.shape
        assert (made[:high, :wide] == row).all()
        assert np.count_nonzero(made == (padding or 0)) == made.size - row.size


ALIKE = {
    "scalars": [1, 2.5],
    "texts": ["a", "longer"],
    "rows": [np.arange(3, dtype=">i2")] * 2,
    "dicts": [{"a": np.zeros(2), "b": n} for n in range(3)],
    "one": [np.arange(2)],
}


@pytest.mark.parametrize("name", ALIKE)
def test_leaves_of_equal_shapes_are_stacked(name):
    padded, stacked = padded_batch(ALIKE[name]), make_batch(ALIKE[name])
    np.testing.assert_equal(padded, stacked)
    if isinstance(padded, np.ndarray):
        assert padded.dtype == stacked.dtype


def test_types_are_promoted_like_in_other_batches():
    batch = padded_batch([np.zeros(2, np.float32), np.ones(1, np.float64)])
    assert batch.dtype == np.float64
    texts = padded_batch([np.array(["a"]), np.array(["bc", "d"])])
    assert texts.tolist() == [["a", ""], ["bc", "d"]]


def test_first_axes_are_padded_to_a_length():
    elements = [{"x": np.ones((n, 2)), "y": n} for n in (1, 2)]
    batch = padded_batch(elements, length=4)
    assert batch["x"].shape == (2, 4, 2)
    assert batch["x"].sum(axis=(1, 2)).tolist() == [2, 4]
    assert batch["y"].tolist() == [1, 2]


def test_each_leaf_may_have_its_own_padding():
    elements = [{"x": np.ones(n, np.int8), "y": [np.ones(n)]} for n in (1, 2)]
    batch = padded_batch(elements, padding_values={"x": -1, "y": [0.5]})
    assert batch["x"].tolist() == [[1, -1], [1, 1]]
    assert batch["y"][0].tolist() == [[1, 0.5], [1, 1]]


ROWS = [np.zeros(1, np.uint8), np.zeros(3, np.uint8)]


@pytest.mark.parametrize(
    ("elements", "how", "error", "text"),
    [
        ([], {}, ValueError, "Cannot batch 0 values"),
        ([np.zeros(1), np.zeros((1, 1))], {}, ShapeMismatch, r"shape \(1, 1\), but"),
        ([{"a": 1}, {"b": 1}], {}, ShapeMismatch, "same structure"),
        (ROWS, {"length": 2}, ValueError, "length of at most 2, got 3"),
        (ROWS, {"padding_values": -1}, ValueError, "dtype of the leaf, uint8, got -1"),
        (
            ROWS,
            {"padding_values": 0.5},
            ValueError,
            "the leaf, uint8, got 0.5",
        ),
        (ROWS, {"padding_values": {"x": 1}}, ValueError, "must be one value, or have"),
    ],
)
def test_invalid_padding_is_refused(elements, how, error, text):
    with pytest.raises(error, match=text):
        padded_batch(elements, **how)
