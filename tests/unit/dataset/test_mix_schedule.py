"""Schedules of weights, and the arguments of mixtures that count tokens."""

import itertools
import math
import sys

import numpy as np
import pytest

import gristmill as g
from gristmill.errors import StateMismatch
from gristmill.mixing import Stage, scheduled_stages

LENGTHS = [[1, 2, 3], [4, 5]]


def parts():
    return [g.MapDataset.range(3), g.MapDataset.range(10, 12)]


def endless(count=2):
    return [g.MapDataset.range(10 * i, 10 * i + 9).repeat() for i in range(count)]


def of_first(mixed, count):
    """Return whether each of the first elements is from the first dataset."""
    return [mixed[index] < 10 for index in range(count)]


@pytest.mark.parametrize(
    ("unit", "batch_size", "start"), [("elements", None, 6), ("batches", 3, 2)]
)
def test_weights_change_at_the_element(unit, batch_size, start):
    schedule = g.MixSchedule(
        [(0, [1, 0]), (start, [0, 1]), (2 * start, [1, 1])],
        unit=unit,
        batch_size=batch_size,
    )
    mixed = g.MapDataset.mix(endless(), schedule)
    assert of_first(mixed, 16) == [True] * 6 + [False] * 6 + [True, False] * 2
    iterator = iter(
        g.IterDataset.mix([each.to_iter_dataset() for each in endless()], schedule)
    )
    assert [*itertools.islice(iterator, 16)] == [mixed[i] for i in range(16)]


def test_weights_change_after_the_tokens():
    schedule = g.MixSchedule([(0, [1, 0]), (7, [0, 1])], unit="tokens")
    lengths = [[2] * 9, [2] * 9]
    mixed = g.MapDataset.mix(endless(), schedule, lengths=lengths)
    assert of_first(mixed, 8) == [True] * 4 + [False] * 4
    assert mixed.tokens_before(6) == (8, 4)


def test_ramp_has_its_share_at_each_point():
    schedule = g.MixSchedule(
        [(0, [1, 0]), (1000, [0, 1]), (1200, [0, 1]), (2200, [1, 1])],
        unit="elements",
        ramp=True,
    )
    mixed = g.MapDataset.mix(endless(), schedule)
    # The integrals of the first weight: of a line from 1 to 0, then from 0 to 1 / 2.
    found = [mixed.indices_before(n)[0] for n in (250, 500, 1000, 1200, 2200)]
    assert np.abs(np.subtract(found, [218.75, 375, 500, 500, 750])).max() <= 1
    assert of_first(mixed[2200:], 6) in ([True, False] * 3, [False, True] * 3)


def test_stages_are_the_steps_of_ramps():
    schedule = g.MixSchedule([(0, [2, 0]), (2, [1, 1])], unit="elements", ramp=True)
    assert scheduled_stages(schedule, None, 2) == [
        Stage(0, (0.875, 0.125)),
        Stage(1, (0.625, 0.375)),
        Stage(2, (0.5, 0.5)),
    ]


def test_weights_may_change_at_each_element():
    points = [(n, [n % 3 == 0, n % 3 > 0]) for n in range(1000)]
    schedule = g.MixSchedule(points, unit="elements")
    mixed = g.MapDataset.mix(endless(), schedule)
    expected = [n % 3 == 0 for n in range(999)]
    assert of_first(mixed, 999) == expected
    iterator = iter(
        g.IterDataset.mix([each.to_iter_dataset() for each in endless()], schedule)
    )
    assert [each < 10 for each in itertools.islice(iterator, 999)] == expected


def test_points_may_have_names():
    schedule = g.MixSchedule([(0, {"b": 3, "a": 1})], unit="elements")
    datasets = dict(zip("ab", endless(), strict=True))
    assert g.MapDataset.mix(datasets, schedule).indices_before(400) == (100, 300)


@pytest.mark.parametrize("unit", ["elements", "tokens"])
def test_length_beyond_int64_is_that_of_an_endless_mixture(unit):
    lengths = [[1, 2, 1, 2, 1, 2, 1, 2, 1], [3] * 9] if unit == "tokens" else None
    weights = g.MixSchedule([(0, [1, 1e-30])], unit="elements")
    parts = [endless()[0], g.MapDataset.range(9)]
    mixture = g.MapDataset.mix(parts, weights, unit=unit, lengths=lengths)
    assert len(mixture) == sys.maxsize
    assert [mixture[n] for n in range(4)] == [0, 0, 1, 2]


def test_far_position_costs_no_walk_from_the_start():
    lengths = [np.arange(1, 10)] * 2
    mixed = g.MapDataset.mix(endless(), [1, 3], unit="tokens", lengths=lengths)
    assert len(mixed) == sys.maxsize
    assert mixed.indices_before(36 * 10**12) == (9 * 10**12, 27 * 10**12)
    assert mixed[36 * 10**12] == mixed[0]


@pytest.mark.parametrize("dtype", ["<i4", ">i4", np.uint8, np.uint64])
def test_lengths_of_any_layout_are_equal(dtype):
    lengths = np.arange(1, 10)
    strided = np.repeat(lengths.astype(dtype), 2)[::2]
    unaligned = np.frombuffer(b" " + lengths.astype(dtype).tobytes(), dtype, offset=1)
    for layout in (strided, unaligned):
        mixed = g.MapDataset.mix(endless(), unit="tokens", lengths=[layout, lengths])
        expected = g.MapDataset.mix(
            endless(), unit="tokens", lengths=[lengths, lengths]
        )
        assert [mixed[i] for i in range(40)] == [expected[i] for i in range(40)]


def test_dropped_dataset_shares_its_weight():
    lengths = [[4] * 100, [4] * 100, [4] * 10]
    datasets = [
        g.MapDataset.range(100 * i, 100 * i + len(each))
        for i, each in enumerate(lengths)
    ]
    mixed = g.MapDataset.mix(
        datasets, [2, 1, 1], unit="tokens", lengths=lengths, at_end="drop"
    )
    assert len(mixed) == 210
    assert mixed.indices_before(40) == (20, 10, 10)
    assert mixed.indices_before(70) == (40, 20, 10)
    assert mixed.indices_before(210) == (100, 100, 10)
    assert mixed.tokens_before(210) == (400, 400, 40)


@pytest.mark.parametrize(
    ("points", "how", "error", "text"),
    [
        ([], {}, ValueError, "at least one pair"),
        ("ab", {}, TypeError, "points must be a list of pairs"),
        ([3], {}, TypeError, r"points\[0\] must be a pair \(start, weights\), got int"),
        ([(1, [1])], {}, ValueError, "first start of a schedule must be 0, got 1"),
        ([(0, [1]), (5, [1]), (4, [1])], {}, ValueError, r"points\[2\] starts at 4"),
        ([(0, [1]), (0, [1])], {}, ValueError, "must increase"),
        (
            [(0.5, [1])],
            {},
            TypeError,
            r"start of points\[0\] must be an int, got float",
        ),
        ([(0, [1, -1])], {}, ValueError, "at least 0, got -1"),
        ([(0, [0, 0])], {}, ValueError, "At least one weight"),
        ([(0, [])], {}, ValueError, "At least one weight"),
        ([(0, [math.nan])], {}, ValueError, "finite number, got nan"),
        ([(0, [math.inf])], {}, ValueError, "finite number, got inf"),
        ([(0, ["1"])], {}, TypeError, "must be a number, got str"),
        ([(0, 1)], {}, TypeError, "must have a list of weights"),
        ([(0, [1]), (1, [1, 2])], {}, ValueError, r"points\[1\] has weights for 2"),
        ([(0, [1]), (1, {"a": 1})], {}, ValueError, "the same datasets"),
        ([(0, [1])], {"unit": "steps"}, ValueError, "unit must be one of"),
        ([(0, [1])], {"batch_size": 3}, ValueError, "batch_size needs unit='batches'"),
        ([(0, [1])], {"unit": "batches"}, ValueError, "needs batch_size"),
        (
            [(0, [1])],
            {"unit": "batches", "batch_size": 0},
            ValueError,
            "batch_size must be at least 1, got 0",
        ),
        ([(0, [1])], {"ramp": "linear"}, TypeError, "ramp must be True or False"),
    ],
)
def test_invalid_schedule_raises(points, how, error, text):
    with pytest.raises(error, match=text):
        g.MixSchedule(points, **{"unit": "tokens", **how})


def schedule(*weights):
    return g.MixSchedule([(0, list(weights))], unit="elements")


NAMED = {"a": g.MapDataset.range(3), "b": g.MapDataset.range(3)}
TOKENS = {"unit": "tokens", "lengths": LENGTHS}


@pytest.mark.parametrize(
    ("datasets", "weights", "how", "error", "text"),
    [
        (parts(), [1, -1], TOKENS, ValueError, "at least 0, got -1"),
        (parts(), [1, 0], TOKENS, ValueError, "Weights must be positive, got"),
        (parts(), [0, 0], TOKENS, ValueError, "At least one weight"),
        (parts(), [1, math.nan], TOKENS, ValueError, "finite number, got nan"),
        (parts(), [1, math.inf], TOKENS, ValueError, "finite number, got inf"),
        (parts(), [1], TOKENS, ValueError, "must have 2 weights, .* got 1"),
        (parts(), schedule(1), {}, ValueError, "must have 2 weights, .* got 1"),
        (parts(), schedule(1, 0), {}, ValueError, "Dataset 1 has weight 0 at each"),
        (NAMED, schedule(1, 1), {}, TypeError, "must both have names"),
        (parts(), {"a": 1, "b": 1}, TOKENS, TypeError, "both be mappings"),
        (parts(), None, {"unit": "words"}, ValueError, "unit must be one of"),
        (parts(), None, {"at_end": "wrap"}, ValueError, "at_end must be one of"),
        (parts(), None, {"unit": "tokens"}, ValueError, "dataset 0 .* is not known"),
        (parts(), None, {"lengths": LENGTHS}, ValueError, "lengths has no effect"),
        (parts(), None, {**TOKENS, "lengths": [[1]]}, ValueError, "2 arrays, .* got 1"),
        (parts(), None, {**TOKENS, "lengths": 3}, TypeError, "lengths must be a list"),
        (NAMED, None, TOKENS, TypeError, "datasets and lengths must both be mappings"),
        (
            NAMED,
            None,
            {"unit": "tokens", "lengths": {"a": [1] * 3, "c": [1] * 3}},
            ValueError,
            r"names of the datasets, \['a', 'b'\], got \['a', 'c'\]",
        ),
        (
            parts(),
            None,
            {**TOKENS, "lengths": [[1, 2, 3], [[4, 5]]]},
            ValueError,
            r"Lengths of dataset 1 must have shape \(2,\), .* got \(1, 2\)",
        ),
        (
            parts(),
            None,
            {**TOKENS, "lengths": [[1, 2, 3], [4.0, 5]]},
            TypeError,
            "Lengths of dataset 1 must be integers, got list of dtype float64",
        ),
        (
            parts(),
            None,
            {**TOKENS, "lengths": [[1, -2, 3], [4, 5]]},
            ValueError,
            "at least 0, got -2 at 1",
        ),
        (
            parts(),
            None,
            {**TOKENS, "lengths": [[1, 2, 3], [0, 0]]},
            ValueError,
            "dataset 1 has no tokens",
        ),
        (
            [*parts()[:1], g.MapDataset.range(0)],
            None,
            {**TOKENS, "lengths": [[1, 2, 3], []]},
            ValueError,
            "dataset 1 .* has length 0",
        ),
        (parts(), None, {"epochs": 0}, ValueError, "epochs must be at least 1, got 0"),
        (parts(), None, {"epochs": 1.5}, TypeError, "epochs must be an int"),
        (parts(), None, {"epochs": np.ones(2)}, TypeError, "epochs must be an int"),
        (
            parts(),
            None,
            {**TOKENS, "lengths": [np.full(3, 2**62), [1] * 2]},
            ValueError,
            "dataset 0 must be at most .* got 4611686018427387904",
        ),
        (parts(), None, {"epochs": [1]}, ValueError, "epochs must have 2 numbers"),
        (parts(), None, {"epochs": {"a": 1}}, TypeError, "epochs has names"),
        (NAMED, None, {"epochs": {"a": 1}}, ValueError, "epochs must have the names"),
        (NAMED, None, {"epochs": [1, 2]}, TypeError, "epochs is a list"),
        (endless(), None, {"epochs": 2}, ValueError, "infinite"),
        ([], None, {"unit": "tokens"}, ValueError, "no datasets to mix"),
        (parts()[0], None, {"unit": "tokens"}, TypeError, "sequence of datasets"),
        (
            [each.to_iter_dataset() for each in parts()],
            None,
            TOKENS,
            TypeError,
            "must be of type MapDataset",
        ),
    ],
)
def test_invalid_argument_raises(datasets, weights, how, error, text):
    with pytest.raises(error, match=text):
        g.MapDataset.mix(datasets, weights, **how)


def test_invalid_index_raises():
    mixed = g.MapDataset.mix(parts(), unit="tokens", lengths=LENGTHS)
    for index in (-1, 2**63):
        with pytest.raises(IndexError, match="order begins at index 0"):
            mixed[index]


@pytest.mark.parametrize(
    ("elements", "tokens", "text"),
    [
        ([1], None, "an array or a list of tokens, got int"),
        (["text"], None, "an array or a list of tokens, got str"),
        ([{"ids": [1]}], None, "Pass tokens='field'"),
        ([{"ids": [1]}], "text", r"in the field 'text', got \['ids'\]"),
        ([[1]], "text", "in the field 'text', got list"),
        ([{"ids": 1}], "ids", "in the field 'ids'"),
    ],
)
def test_element_without_tokens_raises(elements, tokens, text):
    part = g.MapDataset.source(elements).to_iter_dataset()
    with pytest.raises(TypeError, match=text):
        next(iter(g.IterDataset.mix([part], unit="tokens", tokens=tokens)))


@pytest.mark.parametrize("count", [-1, 1.5, None])
def test_function_that_returns_no_count_raises(count):
    part = g.MapDataset.range(3).to_iter_dataset()
    mixed = g.IterDataset.mix([part], unit="tokens", tokens=lambda _: count)
    with pytest.raises(ValueError, match="must return an int of at least 0"):
        next(iter(mixed))


def test_tokens_must_be_a_field_or_a_function():
    part = g.MapDataset.range(3).to_iter_dataset()
    with pytest.raises(TypeError, match="tokens must be the name of a field"):
        g.IterDataset.mix([part], unit="tokens", tokens=3)
    with pytest.raises(ValueError, match="tokens has no effect"):
        g.IterDataset.mix([part], tokens="ids")


def saved(datasets):
    iterator = iter(g.IterDataset.mix(datasets, unit="tokens"))
    next(iterator)
    return iterator, iterator.get_state()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["index"], -1),
        (["stop"], "no"),
        (["sources"], {}),
        (["sources"], []),
        (["sources", 0, "tokens"], -1),
        (["sources", 0, "elements"], 1.5),
        (["sources", 0, "weight"], math.nan),
        (["sources", 0, "weight"], -1),
        (["sources", 0, "lead"], "1"),
        (["sources", 1, "ended"], 2),
        (["sources", 1], {}),
        (["parents", 1], {"next_index": "1"}),
    ],
)
def test_invalid_state_raises_and_changes_nothing(path, value):
    records = g.MapDataset.source([[1], [2, 3]]).to_iter_dataset()
    iterator, before = saved([records, records])
    _, state = saved([records, records])
    place = state
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(StateMismatch):
        iterator.set_state(state)
    assert iterator.get_state() == before


def test_state_of_grains_mixture_is_not_of_this_one():
    records = g.MapDataset.source([[1], [2, 3]]).to_iter_dataset()
    iterator, _ = saved([records])
    with pytest.raises(StateMismatch, match="'sources'"):
        iterator.set_state(iter(g.IterDataset.mix([records])).get_state())
