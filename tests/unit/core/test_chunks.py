"""Gathers rows of tables in chunks, from columns and from interleaved rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import _core

DTYPES = ["?", "i1", "i2", "f4", "i8", "c16", "M8[us]", "S3"]


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=9).filter(sum),
    st.lists(st.sampled_from(DTYPES), min_size=1, max_size=4),
    st.integers(0, 100),
    st.integers(0, 9),
)
def test_gather_from_chunks_equals_indexing(sizes, dtypes, count, seed):
    draw = np.random.default_rng(seed)
    whole = [draw.integers(0, 100, sum(sizes)).astype(dtype) for dtype in dtypes]
    bounds = np.cumsum([0, *sizes])
    rows = draw.integers(0, sum(sizes), count)
    found, numbers, offsets = _core.find_chunks(bounds, rows)
    owners = np.searchsorted(bounds, rows, "right") - 1
    assert found.tolist() == list(dict.fromkeys(owners.tolist()))
    np.testing.assert_array_equal(found[numbers], owners)
    np.testing.assert_array_equal(bounds[owners] + offsets, rows)

    chunks = [tuple(c[bounds[g] : bounds[g + 1]] for c in whole) for g in found]
    outs = [np.empty(count, dtype) for dtype in dtypes]
    _core.gather_chunks(chunks, numbers, offsets, outs)
    for out, column in zip(outs, whole, strict=True):
        np.testing.assert_array_equal(out, column[rows])

    tables = []
    for chunk in chunks:
        row_bytes = sum(column.itemsize for column in whole)
        tables.append(np.empty((len(chunk[0]), row_bytes), np.uint8))
        _core.interleave(chunk, tables[-1])
    outs = [np.empty(count, dtype) for dtype in dtypes]
    _core.gather_interleaved(tables, numbers, offsets, outs)
    for out, column in zip(outs, whole, strict=True):
        np.testing.assert_array_equal(out, column[rows])


def test_gather_chunks_rows_can_be_arrays():
    chunk = np.arange(24).reshape(4, 3, 2)
    out = np.empty((2, 3, 2), np.int64)
    _core.gather_chunks([(chunk,)], np.zeros(2, np.int64), np.array([3, 1]), [out])
    np.testing.assert_array_equal(out, chunk[[3, 1]])


def test_chunks_wrong_arguments_raise():
    column, out = np.arange(3), np.empty(1, np.int64)
    zero, three = np.zeros(1, np.int64), np.full(1, 3)
    table = np.zeros((3, 8), np.uint8)
    for error, text, call in [
        (
            ValueError,
            "bounds must be sorted",
            lambda: _core.find_chunks(np.array([0, 2, 1]), zero),
        ),
        (
            IndexError,
            r"rows\[0\] must be in \[0, 3\), got 3",
            lambda: _core.find_chunks(np.array([0, 3]), three),
        ),
        (
            IndexError,
            r"rows\[0\] must be in \[0, 3\), got -3",
            lambda: _core.find_chunks(np.array([0, 3]), -three),
        ),
    ]:
        with pytest.raises(error, match=text):
            call()
    for gather, chunk in (
        (_core.gather_chunks, (column,)),
        (_core.gather_interleaved, table),
    ):
        for error, arguments in [
            (IndexError, ([chunk], zero, three, [out])),
            (IndexError, ([chunk], three, zero, [out])),
            (IndexError, ([chunk], zero, -three, [out])),
            (ValueError, ([chunk], zero, np.zeros(2, np.int64), [out])),
            (ValueError, ([chunk], zero, zero, [np.empty(2, np.int64)])),
            (ValueError, ([chunk], zero, zero, [np.empty(1, np.int32)])),
            (ValueError, ([chunk], zero, zero, [out, out])),
            ((TypeError, ValueError), ([chunk], zero, zero, [np.empty(1, object)])),
        ]:
            with pytest.raises(error):
                gather(*arguments)
    with pytest.raises(ValueError, match="out must not share memory with a chunk"):
        _core.gather_chunks([(column,)], zero, zero, [column[:1]])
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        _core.interleave([np.arange(2)], table)
    with pytest.raises(ValueError, match=r"shape \(N, 4\)"):
        _core.interleave([np.arange(3, dtype=np.int32)], table)
