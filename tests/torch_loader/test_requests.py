"""Tests that requests to torch workers arrive unchanged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._torch.indices.draws import IndexBatch
from gristmill._torch.indices.requests import NextBatch, WithState, pack, unpack

counts = st.integers(0, 2**63 - 1)
next_batches = st.builds(
    NextBatch,
    iteration=counts,
    number=counts,
    size=st.none() | counts,
    seed=st.none() | counts,
)
keys = (
    st.integers(-(2**70), 2**70)
    | st.booleans()
    | st.text()
    | st.none()
    | st.lists(st.integers(-(2**65), 2**65))
    | st.tuples(st.integers(), st.text())
)


@given(keys | next_batches | st.builds(WithState, keys | next_batches))
def test_request_arrives_with_its_value_and_type(request):
    arrived = unpack(pack(request))
    assert arrived == request
    assert type(arrived) is type(request)


@pytest.mark.parametrize("key", [2**63 - 1, -(2**63) + 1, 2**63, -(2**63), np.int64(5)])
def test_key_at_limits_of_int64_arrives(key):
    arrived = unpack(pack(key))
    assert (arrived, type(arrived)) == (key, type(key))


@pytest.mark.parametrize("block", [range(3, 7), np.array([4, 2, 4])])
def test_drawn_keys_arrive_as_a_list(block):
    assert unpack(pack(IndexBatch(block))) == [*block]
    assert unpack(pack(WithState(IndexBatch(block)))) == WithState([*block])


@given(counts.filter(lambda key: key < 2**40))
def test_integer_key_takes_two_words(key):
    assert len(pack(key)) == 2
