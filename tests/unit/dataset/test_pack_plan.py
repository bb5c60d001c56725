"""Plans of packed rows: every token once, and rows that depend only on their number."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import _core
from support import olmo_packing

METHODS = ["best_fit", "first_fit", "longest_first", "split"]


@st.composite
def plans(draw: Any) -> tuple[_core.PackPlan, np.ndarray, dict[str, Any]]:
    """Draw a plan, its lengths and its options."""
    capacity = draw(st.integers(1, 40))
    lengths = draw(st.lists(st.integers(0, 90), max_size=60))
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    options: dict[str, Any] = {
        "capacity": capacity,
        "method": draw(st.sampled_from(METHODS)),
        "long_documents": draw(st.sampled_from(["cut", "drop"])),
        "window": draw(st.integers(1, 70)),
        "seed": draw(st.none() | st.integers(0, 2**32 - 1)),
        "num_epochs": draw(st.integers(1, 3)),
    }
    if draw(st.booleans()):
        options["span_costs"] = np.arange(capacity + 1.0) ** 2
        options["group_rows"] = draw(st.integers(1, 9))
    array = np.array(lengths, dtype)
    return _core.PackPlan(array, **options), array, options


def _keys(plan: _core.PackPlan) -> np.ndarray:
    return np.arange(plan.num_rows)


def _spans(plan: _core.PackPlan, key: int) -> list[tuple[int, int, int]]:
    _, *columns = plan.rows(np.array([key]))
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(plans())
def test_epoch_has_every_token_once(drawn: Any) -> None:
    plan, lengths, options = drawn
    capacity = options["capacity"]
    kept = lengths
    if options["long_documents"] == "drop":
        kept = np.where(lengths > capacity, 0, lengths)
    offsets, documents, begins, ends = plan.rows(_keys(plan))
    assert np.all(begins < ends)
    if plan.num_rows:
        assert np.add.reduceat(ends - begins, offsets[:-1]).max() <= capacity
    epochs = np.repeat(plan.epochs(_keys(plan)), np.diff(offsets))
    for epoch in range(options["num_epochs"]):
        chosen = np.flatnonzero(epochs == epoch)
        seen = [np.zeros(length, int) for length in kept]
        for i in chosen:
            seen[documents[i]][begins[i] : ends[i]] += 1
        assert all(np.all(one == 1) for one in seen)


@settings(max_examples=40)
@given(plans(), st.randoms(use_true_random=False))
def test_row_does_not_depend_on_calls(drawn: Any, random: Any) -> None:
    plan, lengths, options = drawn
    expected = [_spans(plan, key) for key in range(plan.num_rows)]
    keys = list(range(plan.num_rows))
    random.shuffle(keys)
    other = _core.PackPlan(lengths, **options)
    for key in keys:
        assert _spans(other, key) == expected[key]
    if keys:
        offsets, documents, _, _ = other.rows(np.array(keys))
        for i, key in enumerate(keys):
            row = documents[offsets[i] : offsets[i + 1]].tolist()
            assert row == [document for document, _, _ in expected[key]]


@settings(max_examples=40)
@given(plans())
def test_pickled_plan_has_equal_rows(drawn: Any) -> None:
    plan, _, _ = drawn
    before = pickle.loads(pickle.dumps(plan))
    expected = plan.rows(_keys(plan))
    after = pickle.loads(pickle.dumps(plan))
    for copy in (before, after):
        assert copy.num_rows == plan.num_rows
        for ours, theirs in zip(copy.rows(_keys(plan)), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@given(plans(), st.sampled_from([1, 2, 3, 4, 6]), st.integers(1, 4))
def test_ranks_get_every_row_of_a_step_once(
    drawn: Any, ranks: int, rows_per_rank: int
) -> None:
    plan, _, options = drawn
    if "span_costs" not in options:
        return
    step_rows = ranks * rows_per_rank
    for first in range(0, plan.num_rows - step_rows + 1, step_rows):
        costs = plan.costs(np.arange(first, first + step_rows))
        dealt = _core.deal(costs, ranks)
        assert dealt.shape == (ranks, rows_per_rank)
        assert sorted(dealt.ravel().tolist()) == list(range(step_rows))


def _log_normal(documents: int, mean: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    drawn = rng.lognormal(np.log(mean) - 1.2**2 / 2, 1.2, documents)
    return np.maximum(drawn, 1).astype(np.int64)


@pytest.mark.parametrize("capacity", [2048, 8192])
@pytest.mark.parametrize("method", METHODS)
def test_rows_are_nearly_full(capacity: int, method: str) -> None:
    lengths = _log_normal(1 << 16, 800)
    plan = _core.PackPlan(lengths, capacity, method=method, seed=1)
    density = lengths.sum() / (plan.num_rows * capacity)
    assert density >= 0.995


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 64), min_size=1, max_size=200),
    st.sampled_from([64, 128]),
    st.none() | st.integers(0, 2**32 - 1),
)
def test_best_fit_rows_are_as_full_as_those_of_olmo_core(
    lengths: list[int], capacity: int, seed: int | None
) -> None:
    plan = _core.PackPlan(np.array(lengths), capacity, seed=seed)
    offsets, documents, _, _ = plan.rows(_keys(plan))
    ours = np.add.reduceat(np.array(lengths)[documents], offsets[:-1])
    rows = olmo_packing.pack(np.array(lengths), capacity)
    theirs = [sum(lengths[document] for document in row) for row in rows]
    assert sorted(ours.tolist()) == sorted(theirs)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_greatest_cost_of_a_rank_is_near_the_mean(ranks: int, power: int) -> None:
    capacity, rows_per_rank = 2048, 8
    plan = _core.PackPlan(
        _log_normal(1 << 17, 800),
        capacity,
        window=1 << 17,
        seed=1,
        span_costs=np.arange(capacity + 1.0) ** power,
        group_rows=ranks * rows_per_rank,
    )
    step_rows = ranks * rows_per_rank
    steps = plan.num_rows // step_rows
    costs = plan.costs(np.arange(steps * step_rows)).reshape(steps, step_rows)
    # The steps whose rows differ most.
    for step in np.argsort(costs.max(1) / costs.mean(1))[-50:]:
        of_ranks = costs[step][_core.deal(costs[step], ranks)].sum(axis=1)
        assert of_ranks.max() <= 1.02 * of_ranks.mean()


def test_rows_of_threads_are_equal() -> None:
    plan = _core.PackPlan(_log_normal(20_000, 300), 512, window=1000, seed=3)
    keys = np.arange(_core.PackPlan(_log_normal(20_000, 300), 512).num_rows // 2)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: plan.rows(keys), range(8)))
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.multiprocess
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_rows_of_processes_are_equal(method: str) -> None:
    plan = _core.PackPlan(_log_normal(5_000, 300), 512, window=1000, seed=3)
    with multiprocessing.get_context(method).Pool(1) as pool:
        found = pool.apply(plan.rows, (np.arange(2000),))
    for ours, theirs in zip(plan.rows(np.arange(2000)), found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_epochs_and_seeds_have_different_orders(seed: int) -> None:
    lengths = np.full(40, 10, np.int32)
    plan = _core.PackPlan(lengths, 20, seed=seed, num_epochs=2)
    assert plan.first_row(1) == 20
    first, second = (plan.rows(np.arange(i, i + 20))[1].tolist() for i in (0, 20))
    assert first != second
    other = _core.PackPlan(lengths, 20, seed=(seed + 7) % 2**32)
    assert other.rows(np.arange(20))[1].tolist() != first


def test_rows_without_a_seed_are_in_order() -> None:
    lengths = np.array([4, 6, 3, 0, 7, 25, 1])
    plan = _core.PackPlan(lengths, 10, method="split")
    offsets, documents, begins, ends = plan.rows(_keys(plan))
    assert offsets.tolist() == [0, 2, 4, 5, 6, 8]
    assert documents.tolist() == [0, 1, 2, 4, 5, 5, 5, 6]
    assert begins.tolist() == [0, 0, 0, 0, 0, 10, 20, 0]
    assert ends.tolist() == [4, 6, 3, 7, 10, 20, 25, 1]


def test_totals_count_long_and_empty_documents() -> None:
    plan = _core.PackPlan(np.array([0, 5, 11, 10, 30]), 10, long_documents="drop")
    assert plan.totals == {
        "documents": 5,
        "tokens": 56,
        "empty_documents": 1,
        "long_documents": 2,
        "long_tokens": 41,
        "hash": plan.totals["hash"],
    }
    assert plan.num_rows == 2
    same = _core.PackPlan(np.array([0, 5, 11, 10, 30]), 99)
    assert same.totals["hash"] == plan.totals["hash"]
    other = _core.PackPlan(np.array([0, 5, 11, 30, 10]), 10)
    assert other.totals["hash"] != plan.totals["hash"]


def test_lengths_are_not_copied_nor_need_alignment() -> None:
    data = np.zeros(2 + 4 * 3, np.uint8)
    lengths = data[2:].view(np.int32)
    lengths[:] = [5, 9, 2]
    plan = _core.PackPlan(lengths, 10)
    assert plan.rows(_keys(plan))[1].tolist() == [0, 2, 1]
    assert pickle.loads(pickle.dumps(plan)).num_rows == 2


def test_lengths_that_changed_raise() -> None:
    lengths = np.full(100, 10)
    plan = _core.PackPlan(lengths, 20, window=10)
    assert plan.num_rows == 50
    lengths[50:] = 20
    assert plan.rows(np.array([3]))[1].tolist() == [6, 7]
    with pytest.raises(ValueError, match="window 7 has 10 rows, but 5 were counted"):
        plan.rows(np.array([37]))


def test_counts_are_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "counts"
    lengths = _log_normal(20_000, 300)
    plan = _core.PackPlan(lengths, 512, window=1000, counts_path=str(path))
    expected = plan.rows(np.arange(plan.num_rows))
    size = path.stat().st_size
    assert size < 1000
    again = _core.PackPlan(lengths, 512, window=1000, counts_path=str(path))
    for ours, theirs in zip(again.rows(_keys(plan)), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    path.write_bytes(path.read_bytes()[:-3])
    damaged = _core.PackPlan(lengths, 512, window=1000, counts_path=str(path))
    assert damaged.num_rows == plan.num_rows
    assert path.stat().st_size == size


@pytest.mark.parametrize(
    ("lengths", "error", "text"),
    [
        ([3, -2], ValueError, "lengths must be at least 0, got -2 for document 1"),
        ([2**51], OverflowError, "lengths must be less than 2**51"),
        ([1.5], TypeError, "lengths must be int32 or int64, got float64"),
        ([[1]], ValueError, "lengths must have one dimension, got 2"),
    ],
)
def test_bad_lengths_raise(lengths: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        _core.PackPlan(np.array(lengths), 10)
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"capacity": 0}, "capacity must be in [1, 2**24], got 0"),
        ({"window": 0}, "window must be in [1, 2**31), got 0"),
        ({"num_epochs": 0}, "num_epochs must be at least 1, got 0"),
        ({"group_rows": 0}, "group_rows must be at least 1, got 0"),
        (
            {"method": "worst_fit"},
            'method must be one of "best_fit", "first_fit", "longest_first", "split", '
            'got "worst_fit"',
        ),
        (
            {"long_documents": "keep"},
            'long_documents must be one of "cut", "drop", got "keep"',
        ),
        (
            {"span_costs": np.ones(3)},
            "span_costs must have capacity + 1 = 5 items, got 3",
        ),
        (
            {"span_costs": np.array([0, 1, np.nan, 1, 1])},
            "span_costs must be in [0, 1e100], got nan for 2 tokens",
        ),
    ],
)
def test_bad_options_raise(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as raised:
        _core.PackPlan(np.array([1]), **({"capacity": 4} | options))
    assert str(raised.value) == text


def test_row_that_does_not_exist_raises() -> None:
    plan = _core.PackPlan(np.array([3, 4]), 4)
    for key in (-1, 2, 2**63 - 1):
        with pytest.raises(IndexError, match=r"row must be in \[0, 2\), got"):
            plan.rows(np.array([0, key]))
    with pytest.raises(IndexError, match=r"epoch must be in \[0, 1\], got 2"):
        plan.first_row(2)
    with pytest.raises(ValueError, match="only in a plan with span_costs"):
        plan.costs(np.array([0]))


def test_bad_dealing_raises() -> None:
    with pytest.raises(ValueError, match="ranks must divide the 3 rows of a step"):
        _core.deal(np.ones(3), 2)
    with pytest.raises(ValueError, match="got NaN for row 1"):
        _core.deal(np.array([1, np.nan]), 2)
