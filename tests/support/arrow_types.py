"""Columns of all kinds that Arrow supports, and a comparison of two values."""

import datetime
import decimal

import numpy as np
import pyarrow as pa

TYPES = {
    "int": pa.array([1, 2, 3]),
    "int with nulls": pa.array([1, None, 3], pa.int8()),
    "uint64": pa.array([1, 2, 2**64 - 1], pa.uint64()),
    "float": pa.array([1.5, None, 2.5], pa.float32()),
    "half": pa.array(np.array([1, 2, 3], np.float16)),
    "bool": pa.array([True, False, True]),
    "bool with nulls": pa.array([True, None, False]),
    "str": pa.array(["a", "", None]),
    "bytes": pa.array([b"a", b"\0\xff", b""]),
    "fixed bytes": pa.array([b"ab", b"cd", None], pa.binary(2)),
    "date": pa.array([datetime.date(2020, 1, 1), None, datetime.date(1, 1, 1)]),
    "time": pa.array([datetime.time(1, 2, 3, 4)] * 3),
    "timestamp": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
    "duration": pa.array([1, 2, 3], pa.duration("ms")),
    "decimal": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("0.01")]),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "null": pa.nulls(3),
    "list": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
    "list with nulls": pa.array([[1, None], [2], []]),
    "list of str": pa.array([["a", "b"], [None], []]),
    "list of lists": pa.array([[[1], [2, 3]], [[]], []]),
    "fixed list": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
    "struct": pa.array([{"x": 1, "y": ["a"]}, {"x": 2, "y": []}, None]),
    "map": pa.array([[("k", 1)], [], [("z", 2)]], pa.map_(pa.string(), pa.int64())),
}


def same(ours, theirs):
    """Return whether two values have equal types, dtypes and content."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert list(ours) == list(theirs)
        return all(same(ours[name], theirs[name]) for name in ours)
    if isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs)
        return all(map(same, ours, theirs))
    if isinstance(ours, (np.ndarray, np.generic)):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if ours.dtype.hasobject:
            return all(map(same, ours, theirs))
        return ours.tobytes() == theirs.tobytes()
    return ours == theirs
