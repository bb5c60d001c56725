"""gristmill._hot.run, alone and compared with a model."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._hot import run
from gristmill._hot import steps as step_kinds
from gristmill._hot.draw import Draws
from gristmill._hot.error_location import location_of
from models import run as model

NO_STEPS: Any = ()


def int64s(*values: int) -> Any:
    return np.array(values, np.int64)


class Squares:
    """A source written in Python that refuses record 13."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, key: int) -> int:
        if key == 13:
            raise LookupError("unlucky")
        assert type(key) is int
        return key * key


class Batched(Squares):
    """A source that reads many records at once and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __getitems__(self, keys: list[int]) -> tuple[int, ...]:
        self.calls += 1
        return tuple(self[key] for key in keys)


@pytest.mark.parametrize(
    "source",
    [
        list(range(0, 100, 10)),
        tuple(range(0, 100, 10)),
        range(0, 100, 10),
        np.arange(0, 100, 10),
        {i: i * 10 for i in range(10)},
    ],
    ids=lambda source: type(source).__name__,
)
def test_reads_keys_in_order(source: Any) -> None:
    result = run.run_block(source, int64s(7, 0, 7), int64s(0, 1, 2), NO_STEPS, None, 0)
    assert result == ([70, 0, 70], None, 3, None)


def test_rows_of_array_are_views() -> None:
    table = np.zeros((3, 2))
    rows, *_ = run.run_block(table, int64s(1), int64s(0), NO_STEPS, None, 0)
    assert np.shares_memory(rows[0], table)


def test_applies_steps_in_order() -> None:
    steps = (
        (step_kinds.MAP, lambda x: x + 1, "add"),
        (step_kinds.MAP, lambda x: x * 10, "times"),
    )
    result = run.run_block([5, 6, 7], int64s(2, 0), int64s(0, 1), steps, None, 0)
    assert result == ([80, 60], None, 2, None)


def test_map_with_index_passes_index_first() -> None:
    steps = ((step_kinds.MAP_WITH_INDEX, lambda i, x: (i, x), "number"),)
    done, *_ = run.run_block([5, 6], int64s(1, 0), int64s(70, 80), steps, None, 0)
    assert done == [(70, 6), (80, 5)]


def test_random_steps_of_a_record_share_a_generator() -> None:
    step = (step_kinds.RANDOM_MAP, lambda x, rng: [*x, rng.random()], "noise")
    steps = (step, step)
    done, *_ = run.run_block([[]], int64s(0, 0), int64s(5, 6), steps, Draws(100), 0)
    expected = [np.random.Generator(np.random.Philox(key=key)) for key in (105, 106)]
    assert done == [[rng.random(), rng.random()] for rng in expected]


def test_any_object_with_at_can_supply_generators() -> None:
    class Named:
        def at(self, index: int) -> str:
            return f"generator {index}"

    steps = ((step_kinds.RANDOM_MAP, lambda x, rng: rng, "noise"),)
    done, *_ = run.run_block([0], int64s(0), int64s(3), steps, Named(), 0)
    assert done == ["generator 3"]


def test_unseeded_random_step_receives_none() -> None:
    steps = ((step_kinds.RANDOM_MAP, lambda x, rng: rng, "noise"),)
    assert run.run_block([0], int64s(0), int64s(0), steps, None, 0)[0] == [None]


def test_block_ends_after_the_requested_outputs() -> None:
    seen: list[int] = []
    steps = ((step_kinds.FILTER, lambda x: seen.append(x) or x % 2, "odd"),)
    nine = int64s(*range(9))
    result = run.run_block(range(9), nine, nine, steps, None, 0, max_outputs=2)
    assert result == ([1, 3], [1, 3], 4, None)
    assert seen == [0, 1, 2, 3]
    whole = run.run_block(range(9), nine, nine, steps, None, 0, max_outputs=5)
    assert whole == ([1, 3, 5, 7], [1, 3, 5, 7], 9, None)


def test_block_read_ends_after_the_requested_outputs() -> None:
    class Source:
        def __getitem__(self, key: int) -> int:
            raise AssertionError

        def __getitems__(self, keys: list[int]) -> list[int]:
            return [10 * key for key in keys]

    nine = int64s(*range(9))
    result = run.run_block(Source(), nine, nine, NO_STEPS, None, 0, max_outputs=3)
    assert result == ([0, 10, 20], None, 3, None)


def test_filter_returns_kept_positions() -> None:
    seen: list[int] = []
    steps = (
        (step_kinds.FILTER, lambda x: x % 2 and "truthy", "odd"),
        (step_kinds.MAP, lambda x: seen.append(x) or x, "see"),
    )
    keys = int64s(0, 1, 2, 3, 4)
    result = run.run_block([3, 4, 5, 6, 7], keys, keys, steps, None, 0)
    assert result == ([3, 5, 7], [0, 2, 4], 5, None)
    assert seen == [3, 5, 7]


def test_filter_keeping_all_returns_none() -> None:
    steps = ((step_kinds.FILTER, lambda x: True, "all"),)
    keys = int64s(0, 1)
    assert run.run_block([3, 4], keys, keys, steps, None, 0) == ([3, 4], None, 2, None)


def test_filter_dropping_all_returns_no_outputs() -> None:
    steps = ((step_kinds.FILTER, lambda x: False, "none"),)
    keys = int64s(0, 1)
    assert run.run_block([3, 4], keys, keys, steps, None, 0) == ([], [], 2, None)


def test_filter_is_truth_tested() -> None:
    steps = ((step_kinds.FILTER, lambda x: np.array([1, 2]), "ambiguous"),)
    *_, error = run.run_block([3], int64s(0), int64s(0), steps, None, 0)
    assert isinstance(error, ValueError)
    assert error.__notes__ == ["while ambiguous processed record 0 (index 0)"]


def test_error_ends_the_block_and_names_step_and_record() -> None:
    steps = (
        (step_kinds.FILTER, lambda x: x != 8, "no eights"),
        (step_kinds.MAP, lambda x: 1 // x, "invert"),
    )
    result = run.run_block(
        [8, 1, 0, 2], int64s(0, 1, 2, 3), int64s(50, 51, 52, 53), steps, None, 0
    )
    done, kept, consumed, error = result
    assert (done, kept, consumed) == ([1], [1], 3)
    assert isinstance(error, ZeroDivisionError)
    assert error.__notes__ == ["while invert processed record 2 (index 52)"]
    place = location_of(error)
    assert place is not None
    assert (place.operation, place.key, place.record_index) == ("invert", 2, 52)
    assert type(pickle.loads(pickle.dumps(place))) is str


def test_error_of_the_source_names_the_record() -> None:
    done, kept, consumed, error = run.run_block(
        Squares(), int64s(2, 13, 3), int64s(0, 1, 2), NO_STEPS, None, 0
    )
    assert (done, kept, consumed) == ([4], None, 2)
    assert isinstance(error, LookupError)
    assert error.__notes__ == ["while reading record 13 (index 1)"]
    place = location_of(error)
    assert place is not None
    assert (place.operation, place.key, place.record_index) == (None, 13, 1)


def test_reads_the_block_with_one_call() -> None:
    source = Batched()
    result = run.run_block(source, int64s(3, 4), int64s(0, 1), NO_STEPS, None, 0)
    assert result == ([9, 16], None, 2, None)
    assert source.calls == 1


def test_failed_block_read_keeps_earlier_records() -> None:
    done, kept, consumed, error = run.run_block(
        Batched(), int64s(3, 13), int64s(0, 1), NO_STEPS, None, 0
    )
    assert (done, kept, consumed) == ([9], None, 2)
    assert error.__notes__ == ["while reading record 13 (index 1)"]


def test_block_read_must_return_all_records() -> None:
    class Short:
        def __getitems__(self, keys: list[int]) -> list[int]:
            return keys[1:]

    result = run.run_block(Short(), int64s(3, 4), int64s(0, 1), NO_STEPS, None, 0)
    assert result[:3] == ([], None, 1)
    assert str(result[3]) == (
        "Short.__getitems__ must return one record for each of 2 keys, got 1 records."
    )
    assert location_of(result[3]) is None


def test_source_may_change_its_returned_list() -> None:
    class Source:
        def __getitems__(self, keys: list[int]) -> list[int]:
            self.given = list(keys)
            return self.given

    source = Source()

    def clear(record: int) -> int:
        source.given.clear()
        return record

    steps = ((step_kinds.MAP, clear, "clear"),)
    out, _, _, error = run.run_block(
        source, int64s(1, 2, 3), int64s(0, 1, 2), steps, None, 0
    )
    assert (out, error) == ([1, 2, 3], None)


class Overridden(Batched):
    """A source whose inherited `__getitems__` does not match its `__getitem__`."""

    def __getitem__(self, key: int) -> int:
        return -key


class Wrapper:
    """A source that delegates other attributes to a wrapped source."""

    def __init__(self) -> None:
        self.wrapped = Batched()

    def __getitem__(self, key: int) -> int:
        return -self.wrapped[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


def test_only_matching_getitems_is_used() -> None:
    for source, expected in ((Overridden(), [-3, -4]), (Wrapper(), [-9, -16])):
        keys = int64s(3, 4)
        done, *_ = run.run_block(source, keys, int64s(0, 1), NO_STEPS, None, 0)
        assert done == expected


def test_long_chain_of_steps_is_applied() -> None:
    steps = ((step_kinds.MAP, lambda x: x + 1, "add"),) * 500
    assert run.run_block([0], int64s(0), int64s(0), steps, None, 0)[0] == [500]


def test_interrupts_are_raised() -> None:
    def interrupt(element: int) -> int:
        raise KeyboardInterrupt

    steps = ((step_kinds.MAP, interrupt, "interrupt"),)
    with pytest.raises(KeyboardInterrupt):
        run.run_block([1], int64s(0), int64s(0), steps, None, 0)


def test_elements_replace_the_source() -> None:
    steps = ((step_kinds.MAP, lambda x: x * 2, "double"),)
    result = run.run_block(
        None, int64s(7, 8), int64s(0, 1), steps, None, 0, elements=["a", "b"]
    )
    assert result == (["aa", "bb"], None, 2, None)


def test_current_record_is_written_to_address() -> None:
    told = ctypes.c_int64(-1)
    seen: list[int] = []
    steps = ((step_kinds.MAP, lambda x: seen.append(told.value), "look"),)
    address = ctypes.addressof(told)
    run.run_block(list("abc"), int64s(2, 0, 1), int64s(0, 1, 2), steps, None, address)
    assert seen == [2, 0, 1]


def test_empty_block_returns_no_outputs() -> None:
    for source in ([], Squares(), Batched()):
        result = run.run_block(source, int64s(), int64s(), NO_STEPS, None, 0)
        assert result == ([], None, 0, None)


@pytest.mark.parametrize(
    "bad", [np.zeros(2), np.zeros((2, 1), np.int64), np.zeros(2, ">i8")]
)
def test_keys_must_be_int64(bad: Any) -> None:
    with pytest.raises(TypeError, match="keys and indices must be contiguous int64"):
        run.run_block([1, 2], bad, int64s(0, 1), NO_STEPS, None, 0)


def test_keys_and_indices_must_have_one_length() -> None:
    with pytest.raises(ValueError, match=r"keys and indices must have 2 .* got 1"):
        run.run_block([1, 2], int64s(0, 1), int64s(0), NO_STEPS, None, 0)


def fail_on_multiples(x: int) -> int:
    if x % 5 == 4:
        raise ValueError(x)
    return 2 * x


STEPS: list[Any] = [
    (step_kinds.MAP, lambda x: x + 3, "add"),
    (step_kinds.MAP, fail_on_multiples, "double"),
    (step_kinds.MAP_WITH_INDEX, lambda i, x: 100 * i + x, "number"),
    (step_kinds.RANDOM_MAP, lambda x, rng: x + int(rng.integers(50)), "noise"),
    (step_kinds.FILTER, lambda x: x % 3, "filter"),
]
SOURCES: list[Any] = [list(range(40)), range(14), np.arange(14), Squares(), Batched()]


def seen(block: Any, source: Any, *args: Any) -> Any:
    """Return the outputs of a block, its error as text, and its current record."""
    told = ctypes.c_int64(-1)
    out, kept, consumed, error = block(source, *args, ctypes.addressof(told))
    notes = None if error is None else [repr(error), error.__notes__]
    place = None if error is None else vars_of(location_of(error))
    return [int(x) for x in out], kept, consumed, notes, place, told.value


def vars_of(place: Any) -> Any:
    return place and (place.operation, place.key, place.record_index)


@given(
    source=st.sampled_from(SOURCES),
    keys=st.lists(st.integers(0, 20), max_size=8),
    first=st.integers(-(2**62), 2**62),
    steps=st.lists(st.sampled_from(STEPS), max_size=4),
)
def test_blocks_match_the_model(
    source: Any, keys: list[int], first: int, steps: list[Any]
) -> None:
    numbers = int64s(*range(first, first + len(keys)))
    args = (int64s(*keys), numbers, tuple(steps), Draws(2**64))
    assert seen(run.run_block, source, *args) == seen(model.run_block, source, *args)
