"""index_shuffle has the results and the errors of Grain's."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill import _core

experimental = pytest.importorskip("grain.experimental")

MAX_INDICES = st.one_of(
    st.integers(0, 2**63 - 1),
    st.integers(0, 63).flatmap(
        lambda bits: st.integers(max(0, 2**bits - 3), min(2**bits + 3, 2**63 - 1))
    ),
)


# A range far below 2**16 takes many passes: no deadline.
@pytest.mark.claim(
    "A shuffle of n = 4^k + 1 records, k >= 8, loses record n - 1 and repeats "
    "another one"
)
@settings(deadline=None)
@given(
    max_index=MAX_INDICES,
    place=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
    rounds=st.integers(2, 512).map(lambda half: 2 * half),
)
@example(max_index=65536, place=1.0, seed=1, rounds=4)
@example(max_index=2**50 + 1, place=1.0, seed=1, rounds=4)
@example(max_index=2**63 - 1, place=1.0, seed=2**32 - 1, rounds=1024)
def test_index_shuffle_equals_grain(max_index, place, seed, rounds):
    index = min(int(max_index * place), max_index)
    arguments = (index, max_index, seed, rounds)
    assert _core.index_shuffle(*arguments) == experimental.index_shuffle(*arguments)


@pytest.mark.parametrize("size", [1, 2, 7, 1000, 65537])
def test_index_shuffle_of_range_equals_grain(size):
    ours = [_core.index_shuffle(i, size - 1, 42, 4) for i in range(0, size, 97)]
    theirs = [
        experimental.index_shuffle(i, size - 1, 42, 4) for i in range(0, size, 97)
    ]
    assert ours == theirs


@pytest.mark.parametrize(
    "arguments",
    [(9, 8, 1, 4), (-1, 8, 1, 4), (1, 0, 1, 4), (0, -1, 1, 4)]
    + [(0, 5, 1, rounds) for rounds in (0, 2, 5, 1026)],
)
def test_error_texts_equal_grain(arguments):
    with pytest.raises(ValueError) as theirs:
        experimental.index_shuffle(*arguments)
    with pytest.raises(ValueError) as ours:
        _core.index_shuffle(*arguments)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    "arguments",
    [(0, 5, -1, 4), (0, 5, 2**32, 4), (2**63, 5, 1, 4), (1.0, 5, 1, 4), (0, 5, 1, -4)],
)
def test_arguments_of_wrong_width_raise_type_error(arguments):
    with pytest.raises(TypeError):
        experimental.index_shuffle(*arguments)
    with pytest.raises(TypeError):
        _core.index_shuffle(*arguments)


def test_index_shuffle_accepts_keywords():
    assert _core.index_shuffle(index=0, max_index=5, seed=1, rounds=4) == 5
