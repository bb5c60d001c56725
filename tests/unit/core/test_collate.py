"""Compares gather, stack and stack_scalars with NumPy."""

import numpy as np
import pytest

from gristmill import _core

DTYPES = [
    "?",
    "u1",
    "i2",
    "f4",
    "f8",
    "c16",
    ">i4",
    "S5",
    "U3",
    "M8[ns]",
    [("a", "u1"), ("b", "f4", (2,))],
]


def filled(shape, dtype, seed=0):
    """Return an array of small numbers."""
    numbers = np.random.default_rng(seed).integers(0, 100, shape)
    if np.dtype(dtype).names:
        array = np.zeros(shape, dtype)
        array["a"] = numbers
        return array
    return numbers.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (4, 2), (0,)])
def test_stack_equals_numpy(dtype, shape):
    arrays = [filled(shape, dtype, seed) for seed in range(7)]
    out = np.empty((7, *shape), dtype)
    assert _core.stack(arrays, out) == -1
    assert np.array_equal(out, np.stack(arrays))


def test_stack_of_large_batch_equals_numpy():
    arrays = [filled((64, 64), "f8", seed) for seed in range(600)]
    out = np.empty((600, 64, 64))
    assert _core.stack(arrays, out) == -1
    assert np.array_equal(out, np.stack(arrays))


@pytest.mark.parametrize("shape", [(2,), (64, 64), (33_333,)])
@pytest.mark.parametrize("streaming", [False, True])
def test_stack_streaming_equals_numpy(shape, streaming):
    arrays = [filled(shape, "f8", seed) for seed in range(64)]
    out = np.empty((64, *shape))
    assert _core.stack(arrays, out, streaming) == -1
    assert np.array_equal(out, np.stack(arrays))


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize(
    "misfit",
    [
        np.zeros(4, "f8"),
        np.zeros(4, ">f4"),
        np.zeros(3, "f4"),
        np.zeros((4, 1), "f4"),
        np.zeros(8, "f4")[::2],
        np.zeros(4, "f4").view(Subclass),
        [0.0] * 4,
        None,
    ],
    ids=["dtype", "order", "shape", "ndim", "strides", "subclass", "list", "none"],
)
def test_stack_returns_first_element_that_does_not_fit(misfit):
    good = np.ones(4, "f4")
    out = np.zeros((4, 4), "f4")
    assert _core.stack([good, good, misfit, misfit], out) == 2
    assert not out.any()


def test_stack_compares_dtypes_by_value():
    dtype = [("a", "u1"), ("b", "f4", (2,))]
    out = np.empty((1, 2), dtype)
    assert _core.stack([np.zeros(2, np.dtype(dtype))], out) == -1
    padded = np.dtype(dtype, align=True)
    assert _core.stack([np.zeros(2, padded)], out) == 0


def test_wrong_out_raises():
    arrays = [np.zeros(2)]
    for fill in (
        _core.stack,
        _core.stack_scalars,
        lambda elements, out: _core.gather(np.zeros((1, 2)), np.zeros(1, int), out),
    ):
        with pytest.raises(TypeError, match="references"):
            fill(arrays, np.empty((1, 2), object))
        with pytest.raises(
            ValueError, match=r"out must have 1 rows, got shape \(3, 2\)"
        ):
            fill(arrays, np.empty((3, 2)))
        with pytest.raises(ValueError, match="C-contiguous"):
            fill(arrays, np.empty((1, 4))[:, ::2])
        frozen = np.empty((1, 2))
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="writeable"):
            fill(arrays, frozen)


@pytest.mark.parametrize("code", "?bBhHiIlLqQefdgFDG")
def test_stack_scalars_equals_numpy(code):
    scalars = list(np.arange(5).astype(code))
    out = np.empty(5, code)
    assert _core.stack_scalars(scalars, out) == -1
    assert np.array_equal(out, np.stack(scalars))


@pytest.mark.parametrize(
    "values",
    [[True, False], [1, -(2**63), 2**63 - 1], [0.5, float("inf"), -0.0]],
    ids=["bool", "int", "float"],
)
def test_stack_scalars_accepts_python_numbers(values):
    expected = np.stack(values)
    out = np.empty_like(expected)
    assert _core.stack_scalars(values, out) == -1
    assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("values", "dtype", "position"),
    [
        ([1, 2, True], "i8", 2),
        ([1, 2**63], "i8", 1),
        ([1.0, 1], "f8", 1),
        ([1.0, np.float64(1)], "f8", 1),
        ([np.float32(1)], "f8", 0),
        ([np.float32(1)], ">f4", 0),
        ([1], "i4", 0),
        ([1], "u8", 0),
        ([np.datetime64(1, "s")], "M8[s]", 0),
        (["a"], "U1", 0),
        ([None], "i8", 0),
    ],
)
def test_stack_scalars_returns_first_that_does_not_fit(values, dtype, position):
    assert _core.stack_scalars(values, np.empty(len(values), dtype)) == position


def test_no_elements_give_empty_batch():
    assert _core.stack([], np.empty((0, 3))) == -1
    assert _core.stack_scalars([], np.empty(0)) == -1
    _core.gather(np.empty((0, 3)), np.empty(0, np.int64), np.empty((0, 3)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (16,), (5, 7), (0,)])
def test_gather_equals_indexing(dtype, shape):
    table = filled((50, *shape), dtype)
    rows = np.random.default_rng(1).integers(0, 50, 80)
    out = np.empty((80, *shape), dtype)
    _core.gather(table, rows, out)
    assert np.array_equal(out, table[rows])


def test_gather_from_large_table_equals_indexing():
    table = filled((40_000, 48), "f4")
    rows = np.random.default_rng(1).integers(0, 40_000, 3000)
    out = np.empty((3000, 48), "f4")
    _core.gather(table, rows, out)
    assert np.array_equal(out, table[rows])


@pytest.mark.parametrize("row", [-1, 10, 2**63 - 1, -(2**63)])
def test_gather_row_out_of_range_raises(row):
    out = np.zeros((3, 2))
    with pytest.raises(IndexError) as caught:
        _core.gather(np.ones((10, 2)), np.array([9, row, row]), out)
    assert str(caught.value) == f"rows[1] must be in [0, 10), got {row}"
    assert not out.any()


def test_gather_wrong_arrays_raise():
    table, rows, out = np.zeros((10, 2)), np.zeros(3, np.int64), np.empty((3, 2))
    with pytest.raises(TypeError):
        _core.gather(table, rows.astype("i4"), out)
    with pytest.raises(ValueError, match="dtype and row shape of table"):
        _core.gather(table, rows, out.astype("f4"))
    with pytest.raises(ValueError, match="dtype and row shape of table"):
        _core.gather(table, rows, np.empty((3, 3)))
    with pytest.raises(ValueError, match="table must be C-contiguous"):
        _core.gather(np.zeros((2, 10)).T, rows, out)
    with pytest.raises(ValueError, match="table must have at least one dim"):
        _core.gather(np.zeros(()), rows, out)
    with pytest.raises(ValueError, match="one dimension"):
        _core.gather(table, rows[None], out)


def test_gather_overlapping_arrays_raise():
    # With rows as out, it would read row numbers that it has overwritten.
    table = np.full(6, 2**60)
    rows = np.zeros(6, np.int64)
    with pytest.raises(ValueError, match="out must not share memory with rows"):
        _core.gather(table, rows, rows)
    with pytest.raises(ValueError, match="out must not share memory with table"):
        _core.gather(table, rows[:2], table[4:])
    _core.gather(table[:4], rows[:2], table[4:])
    assert rows.tolist() == [0] * 6


def test_unaligned_rows_raise():
    rows = np.frombuffer(bytearray(9), np.int64, offset=1)
    with pytest.raises(ValueError, match="rows must be aligned"):
        _core.gather(np.zeros(3), rows, np.empty(1))
    with pytest.raises(ValueError, match="out must be aligned"):
        _core.KeyPlan.range(3).fill(0, 1, rows)


def test_pending_gather_equals_indexing():
    table = filled((5000, 48), "f4")
    rows = np.random.default_rng(1).integers(0, 5000, 60_000)
    pool = _core.Pool(3)
    outs = [np.empty((60_000, 48), "f4") for _ in range(3)]
    pending = [_core.PendingGather(pool, table, rows, out) for out in outs]
    for gather in pending:
        gather.wait()
    assert all(np.array_equal(out, table[rows]) for out in outs)


def test_pending_gather_row_out_of_range_raises():
    rows = np.zeros(60_000, np.int64)
    rows[[12_345, 30_000, 59_999]] = [77, 88, 99]
    table, out = np.ones((50, 48), "f4"), np.empty((60_000, 48), "f4")
    gather = _core.PendingGather(_core.Pool(8), table, rows, out)
    for _ in range(2):
        with pytest.raises(IndexError, match=r"^rows\[12345\] must be .* got 77"):
            gather.wait()


def test_pending_gather_keeps_arrays_and_pool():
    table, rows = np.ones((1 << 15, 32)), np.arange(1 << 15)
    out = np.zeros_like(table)
    gather = _core.PendingGather(_core.Pool(2), table, rows, out)
    expected = table[rows]
    del table, rows
    gather.wait()
    assert np.array_equal(out, expected)
