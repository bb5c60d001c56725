"""RngPool, compared with Grain's RngPool."""

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.experimental import RngPool

experimental = pytest.importorskip("grain.experimental")


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**70) | st.lists(st.integers(0, 2**32 - 1), min_size=1),
    calls=st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 9), st.booleans()),
        min_size=1,
        max_size=6,
    ),
)
def test_draws_match_grain(seed, calls):
    ours, theirs = RngPool(seed), experimental.RngPool(seed)
    for index, op_seed, release in calls:
        our_rng = ours.acquire_rng(index, op_seed=op_seed)
        their_rng = theirs.acquire_rng(index, op_seed=op_seed)
        assert our_rng.random(3).tolist() == their_rng.random(3).tolist()
        assert our_rng.integers(9) == their_rng.integers(9)
        if release:
            ours.release_rng(our_rng)
            theirs.release_rng(their_rng)


def test_generator_is_exclusive_until_released():
    pool = RngPool(1)
    first, second = pool.acquire_rng(0), pool.acquire_rng(0)
    assert first is not second
    pool.release_rng(second)
    assert pool.acquire_rng(5) is second
    assert first.random() == RngPool(1).acquire_rng(0).random()


def test_threads_never_share_a_generator():
    pool = RngPool(3)
    expected = [RngPool(3).acquire_rng(i).random(50).tolist() for i in range(40)]
    wrong = []

    def draw():
        for index in range(40):
            rng = pool.acquire_rng(index)
            drawn = [rng.random() for _ in range(50)]
            pool.release_rng(rng)
            if drawn != expected[index]:
                wrong.append(index)

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_pool_pickles_as_its_seed():
    pool = RngPool(np.uint32(7))
    pool.release_rng(pool.acquire_rng(2))
    assert pool.__reduce__() == (RngPool, (7,))
    again = pickle.loads(pickle.dumps(pool))
    assert again.acquire_rng(2).random() == pool.acquire_rng(2).random()


@pytest.mark.parametrize("arguments", [{"index": -1}, {"index": 0, "op_seed": -1}])
def test_words_out_of_range_overflow_like_grain(arguments):
    for pool in (RngPool(1), experimental.RngPool(1)):
        with pytest.raises(OverflowError):
            pool.acquire_rng(**arguments)
