"""The compiled core raises an exception or works for any arguments."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import _core

MOST = 2**63 - 1
INTS = (
    st.integers(-9, 9)
    | st.sampled_from([MOST, -MOST - 1, 2**62, 2**63, -(2**64), 2**32])
    | st.integers(-(2**63), MOST)
)
ERRORS = (ValueError, TypeError, OverflowError, ZeroDivisionError, IndexError)
PLAN_STEPS = st.one_of(
    st.tuples(st.just("shard"), INTS, INTS),
    st.tuples(st.just("shuffle"), INTS),
    st.tuples(st.just("repeat"), INTS | st.none(), st.booleans()),
    st.tuples(st.just("take"), INTS, INTS, INTS),
)


@settings(deadline=None)
@given(
    start=st.tuples(INTS, INTS, INTS) | st.tuples(INTS),
    steps=st.lists(PLAN_STEPS, max_size=6),
    data=st.data(),
)
def test_plan_any_arguments_raise_or_give_keys(
    start: Any, steps: Any, data: Any
) -> None:
    with contextlib.suppress(*ERRORS):
        folds = len(start) == 3
        make = _core.KeyPlan.range if folds else _core.KeyPlan.positions
        plan = make(*start)
        for name, *arguments in steps:
            with contextlib.suppress(*ERRORS):
                plan = getattr(plan, name)(*arguments)
        # Small shuffles are slow, so only a few keys are read.
        out = np.zeros(data.draw(st.sampled_from([0, 1, 3, 70])), np.int64)
        first, step = data.draw(INTS), data.draw(INTS)
        plan.fill(first, step, out)
        assert out.size == 0 or plan.key(first) == out[0]
        assert plan.keys(first + step * np.arange(out.size)).tolist() == out.tolist()
        if folds and start[0] <= 1000:
            keys = {start[1] + k * start[2] for k in range(start[0])}
            assert keys.issuperset(out.tolist())


@settings(deadline=None)
@given(
    proportions=st.lists(INTS, max_size=5),
    positions=st.lists(st.integers(-MOST - 1, MOST), max_size=20),
    window_size=INTS,
    seed=INTS,
    length=INTS,
)
def test_mixture_and_shuffle_any_arguments_raise_or_work(
    proportions: Any, positions: Any, window_size: Any, seed: Any, length: Any
) -> None:
    asked = np.array(positions, np.int64)
    with contextlib.suppress(*ERRORS):
        components, taken = _core.Mixture(proportions).take(asked)
        assert set(components.tolist()) <= set(range(len(proportions)))
        assert (np.abs(taken.astype(float)) <= np.abs(asked.astype(float)) + 1).all()
    with contextlib.suppress(*ERRORS):
        shuffled = _core.window_shuffle(asked, window_size, seed, length)
        epochs = [position // length for position in positions]
        assert [position // length for position in shuffled.tolist()] == epochs


ROWS = [np.array([2, 0, 1]), np.zeros(3, np.int64)]
TABLES = [np.zeros(3), np.arange(3.0), np.ones((3, 2)), np.arange(6.0).reshape(3, 2)]
ARRAYS = st.sampled_from([*ROWS, *TABLES]) | st.sampled_from(
    [
        np.zeros(()),
        np.zeros(0, np.int64),
        np.ones((0, 2)),
        np.ones((3, 0)),
        np.ones((3, 4))[:, ::2],
        np.ones((4, 3)).T,
        np.broadcast_to(np.ones(2), (3, 2)),
        np.zeros((3, 2), object),
        np.zeros((3, 2), ">f8"),
        np.zeros(3, "S0"),
        np.zeros(3, [("a", "O"), ("b", "i4")]),
        np.zeros(3, "V3"),
        np.frombuffer(bytearray(25), np.int64, offset=1),
        np.frombuffer(bytes(24), np.int64),
        np.array([0, 1, MOST]),
        np.array([0, -1, 2]),
        np.ma.masked_array([1, 2, 3], [0, 1, 0]),
        [[1.0, 2.0]] * 3,
        None,
        7,
    ]
)
PARTS = st.lists(
    ARRAYS | st.integers() | st.floats() | st.booleans(), max_size=4
) | st.lists(st.floats(), min_size=3, max_size=3)


def check_gather(gather: Any, table: Any, rows: Any, out: Any) -> None:
    """Assert that `gather` raises an error or copies the rows."""
    try:
        gather(table, rows, out)
    except ERRORS:
        return
    np.testing.assert_array_equal(out, np.asarray(table)[rows])


def check_stack(fill: Any, parts: Any, out: Any) -> None:
    """Assert that `fill` raises an error, refuses a part or copies all of them."""
    try:
        refused = fill(parts, out)
    except ERRORS:
        return
    if refused < 0:
        assert len(out) == len(parts)
        np.testing.assert_array_equal(out, np.stack(parts) if parts else out)
    else:
        assert refused < len(parts)


@settings(deadline=None, max_examples=400)
@given(one=ARRAYS, two=ARRAYS, three=ARRAYS, parts=PARTS)
def test_gather_and_stack_any_arrays_raise_or_copy(
    one: Any, two: Any, three: Any, parts: Any
) -> None:
    check_gather(_core.gather, one, two, three)
    check_gather(
        lambda *arrays: _core.PendingGather(_core.Pool(2), *arrays).wait(),
        one,
        two,
        three,
    )
    for fill in (_core.stack, _core.stack_scalars):
        check_stack(fill, parts, one)
        check_stack(fill, [one, one, one], two)


@pytest.mark.parametrize("threads", [0, -1, 1025, 10**6, 2**64, "4", None, 1.5])
def test_pool_wrong_thread_count_raises(threads: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        _core.Pool(threads)


def make_scheduler(**changes: Any) -> _core.Scheduler:
    arguments: dict[str, Any] = {
        "workers": 1,
        "buffer": 1,
        "kind": _core.UnitKind.RANGE,
        "unit_records": 4,
        "max_restarts": 1,
        "memory_limit": 1 << 24,
        "lengths": [10],
        "positions": [[0]],
        "next_stream": 0,
        "ended": [False],
    }
    return _core.Scheduler(**{**arguments, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": 0},
        {"workers": 4095},
        {"workers": -1},
        {"buffer": 2**20 + 1},
        {"workers": 4000, "buffer": 2**10},
        {"kind": "B"},
        {"kind": ""},
        {"kind": "AC"},
        {"unit_records": 0},
        {"max_restarts": 101},
        {"lengths": []},
        {"lengths": [1, 2]},
        {"positions": []},
        {"positions": [[]]},
        {"positions": [[0] * 9]},
        {"positions": [[-1]]},
        {"positions": [np.zeros(1)]},
        {"positions": [np.zeros((1, 1), np.int64)]},
        {"positions": [["0"]]},
        {"positions": 0},
        {"positions": [[0] * 9], "position_capacity": 8},
        {"position_capacity": 0},
        {"position_capacity": -1},
        {"position_capacity": 65537},
        {"next_stream": 1},
        {"ended": []},
        {"ended": None},
    ],
    ids=repr,
)
def test_scheduler_wrong_arguments_raise(changes: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        make_scheduler(**changes)


def test_scheduler_not_started_methods_work() -> None:
    scheduler = make_scheduler()
    with pytest.raises(RuntimeError, match="between a next"):
        scheduler.add_view()
    scheduler.advance()
    for worker in (-1, 0, 1, 2**31 - 1):
        scheduler.kill(worker)
    with pytest.raises(
        ValueError, match="one entry for each of 1 streams, got 0 and 0"
    ):
        scheduler.reset([], 0, [])
    positions, next_stream, ended = scheduler.position()
    assert [position.tolist() for position in positions] == [[0]]
    assert (next_stream, ended) == (0, [False])
    threading.Timer(0.2, scheduler.close).start()
    assert scheduler.next(float("inf")).kind == "closed"
    assert scheduler.next(float("nan")).kind == "closed"


def test_position_of_any_type_and_length_is_accepted() -> None:
    scheduler = make_scheduler(
        kind=_core.UnitKind.SEQUENTIAL, positions=[range(9)], position_capacity=9000
    )
    assert scheduler.position()[0][0].tolist() == list(range(9))
    for position in ([7], np.arange(9000)[::-1], (-(2**63), 2**63 - 1)):
        scheduler.reset([position], 0, [False])
        assert scheduler.position()[0][0].tolist() == list(position)
    with pytest.raises(ValueError, match=r"1 to 9000 integers .*, got 9001"):
        scheduler.reset([np.zeros(9001, np.int64)], 0, [False])
    with pytest.raises(TypeError, match="must have dtype int64"):
        scheduler.reset([np.zeros(1, np.int32)], 0, [False])
    scheduler.close()


@pytest.fixture
def worker_end() -> Iterator[_core.WorkerEnd]:
    scheduler = make_scheduler()
    yield _core.WorkerEnd(scheduler.arena_fd, -1, 0, 1)
    scheduler.close()


def test_worker_end_without_unit_raises(
    worker_end: _core.WorkerEnd,
) -> None:
    with pytest.raises(RuntimeError, match="holds no unit"):
        worker_end.commit(_core.STATUS_OK, 0, 0, [0])
    with pytest.raises(RuntimeError, match="holds no unit"):
        worker_end.request_larger_slot(100)
    worker_end.set_startup_error("x" * 20_000)


def test_worker_end_of_other_file_raises() -> None:
    fd = os.memfd_create("not an arena")
    try:
        with pytest.raises(ValueError, match="an arena, got a file of 0 bytes"):
            _core.WorkerEnd(fd, -1, 0, 1)
        # The control block claims a larger arena than the file.
        os.write(fd, b"\xff" * 4096)
        with pytest.raises(
            ValueError, match="more than 0 workers, got a file of 4096 bytes"
        ):
            _core.WorkerEnd(fd, -1, 0, 1)
        with pytest.raises(OSError, match="fstat"):
            _core.WorkerEnd(-1, -1, 0, 1)
    finally:
        os.close(fd)


def test_pending_gather_in_forked_child_finishes() -> None:
    table = np.arange(1 << 22).reshape(-1, 4)
    rows = np.arange(len(table))[::-1].copy()
    out = np.zeros_like(table)
    pool = _core.Pool(2)
    waiting = [_core.PendingGather(pool, table, rows, np.zeros_like(table))]
    waiting += [_core.PendingGather(pool, table, rows, out) for _ in range(9)]
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        for gather in waiting:
            gather.wait()
        good = np.array_equal(out, table[rows])
        del gather, waiting, pool
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    for gather in waiting:
        gather.wait()
    assert np.array_equal(out, table[rows])
