"""Tests of Remainder, which computes how many elements and batches ranks get."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.sharding import Remainder
from support.dealing import deal_batches


@given(
    how=st.sampled_from(["drop", "pad", "wrap"]),
    records=st.integers(0, 60),
    ranks=st.integers(1, 7),
    batch_size=st.integers(1, 7),
)
def test_numbers_match_dealt_batches(how, records, ranks, batch_size):
    remainder = Remainder(how)
    found = {
        len(batches) for batches in deal_batches(range(records), ranks, batch_size, how)
    }
    assert found == {remainder.batches_per_rank(records, ranks, batch_size)}
    elements = remainder.elements_per_rank(records, ranks, batch_size)
    assert elements == found.pop() * batch_size


def test_numpy_numbers_do_not_overflow():
    most = np.int64(2**62)
    assert Remainder.WRAP.batches_per_rank(most, most, np.int64(8)) == 1
    assert Remainder.DROP.elements_per_rank(most, np.int64(2)) == 2**61


def test_remainder_equals_its_value():
    assert Remainder("drop") is Remainder.DROP
    assert Remainder(Remainder.PAD) is Remainder.PAD
    assert pickle.loads(pickle.dumps(Remainder.WRAP)) is Remainder.WRAP


@pytest.mark.parametrize("value", ["keep", None, True])
def test_invalid_remainder_is_refused(value):
    with pytest.raises(ValueError, match="one of 'drop', 'pad', 'wrap', got"):
        Remainder(value)


@pytest.mark.parametrize(
    ("numbers", "error", "text"),
    [
        ((-1, 1, 1), ValueError, "num_examples must be at least 0, got -1"),
        ((5, 0, 1), ValueError, "ranks must be at least 1, got 0"),
        ((5, 1, 0), ValueError, "batch_size must be at least 1, got 0"),
        ((5, 1, 2.5), TypeError, "batch_size must be an int, got float"),
        ((5, True, 2), TypeError, "ranks must be an int, got bool"),
    ],
)
def test_numbers_out_of_range_are_refused(numbers, error, text):
    with pytest.raises(error, match=text):
        Remainder.DROP.batches_per_rank(*numbers)
