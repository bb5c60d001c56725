"""Unusual elements: foreign layouts, odd dtypes, nested containers.

Every value depends on a record's number alone. All values of one name can be stacked,
so that the default batch accepts them.
"""

import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

Pair = collections.namedtuple("Pair", ["x", "y"])


@dataclasses.dataclass
class Box:
    """A dataclass, which is a leaf of the element's tree."""

    number: int
    text: str


def _read_only(i: int) -> np.ndarray:
    array = np.full(3, i)
    array.setflags(write=False)
    return array


VALUES: dict[str, Callable[[int], Any]] = {
    "beyond_int64": lambda i: 2**63 + i,
    "beyond_uint64": lambda i: 2**70 + i,
    "bool": lambda i: bool(i % 2),
    "complex": lambda i: i + 1j,
    "text": lambda i: "é" * (i % 4) + "x",
    "bytes": lambda i: b"ab" * (i % 3) + b"c",
    "none": lambda i: None,
    "int16": lambda i: np.int16(i),
    "uint64": lambda i: np.uint64(2**62 + i),
    "half": lambda i: np.float16(i),
    "text_scalar": lambda i: np.str_("q" * (i % 3)),
    "date": lambda i: np.datetime64(i, "s"),
    "no_date": lambda i: np.datetime64("NaT"),
    "duration": lambda i: np.timedelta64(i, "ms"),
    "bfloat16": lambda i: ml_dtypes.bfloat16(i),
    "bfloat16_row": lambda i: np.full(2, i, ml_dtypes.bfloat16),
    "float8_row": lambda i: np.full(3, i % 7, ml_dtypes.float8_e4m3fn),
    "int4_row": lambda i: np.full(3, i % 7, ml_dtypes.int4),
    "matrix": lambda i: np.full((2, 3), i, np.float32),
    "fortran": lambda i: np.asfortranarray(np.arange(6).reshape(2, 3) + i),
    "strided": lambda i: (np.arange(24).reshape(4, 6) + i)[::2, ::-2],
    "broadcast": lambda i: np.broadcast_to(np.float32(i), (2, 2)),
    "read_only": _read_only,
    "borrowed": lambda i: np.frombuffer(b"abcdefgh", np.uint8)[i % 4 : i % 4 + 3],
    "zero_d": lambda i: np.array(i),
    "dates": lambda i: np.array([i, i + 1], "M8[D]"),
    "texts": lambda i: np.array(["a" * (i % 4), "b"]),
    "byte_texts": lambda i: np.array([b"a" * (i % 4), b"b"]),
    "complex_row": lambda i: np.full(2, i, np.complex64),
    "flags": lambda i: np.array([i % 2 == 0, True]),
    "objects": lambda i: np.array([i, "a", None], object),
    "structured": lambda i: np.array([(i, i / 2)], [("a", "i4"), ("b", "f8")]),
    "void": lambda i: np.array([(i, i / 2)], [("a", "i4"), ("b", "f8")])[0],
    "masked": lambda i: np.ma.array([i, 2], mask=[False, True]),
    "large": lambda i: np.full((40, 50), i, np.float64),
    "dataclass": lambda i: Box(i, "b"),
    "set": lambda i: {i},
    "slice": lambda i: slice(i),
}

# With workers, Grain refuses empty arrays in a last batch and keeps the byte order of a
# batch's first element. Gristmill does the same with and without workers.
VALUES_WITHOUT_WORKERS: dict[str, Callable[[int], Any]] = VALUES | {
    "big_endian": lambda i: np.array([i, i + 1], ">f8"),
    "empty": lambda i: np.zeros((0, 2)),
    "empty_inside": lambda i: np.zeros((2, 0, 3), np.int16),
}

CONTAINERS: dict[str, Callable[[Any, Any], Any]] = {
    "bare": lambda a, b: a,
    "dict": lambda a, b: {"b": a, "a": b},
    "number_keys": lambda a, b: {3: a, 1: b},
    "ordered": lambda a, b: collections.OrderedDict([("b", a), ("a", b)]),
    "default": lambda a, b: collections.defaultdict(list, {"b": a, "a": b}),
    "user_dict": lambda a, b: collections.UserDict(a=a),
    "namespace": lambda a, b: types.SimpleNamespace(a=1),
    "tuple": lambda a, b: (a, b),
    "list": lambda a, b: [a, b],
    "twice": lambda a, b: (a, a),
    "pair": lambda a, b: Pair(a, b),
    "nested": lambda a, b: {"z": [a, (b, {"k": a})], "y": Pair(b, [a])},
    "hollow": lambda a, b: {"x": a, "e": [], "n": None, "t": (), "d": {}},
}


class StrangeSource:
    """A source of containers of two values made from a record's number."""

    def __init__(self, size: int, values: list[str], container: str):
        self._size = size
        self._values = values
        self._container = container

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Any:
        first, second = (VALUES_WITHOUT_WORKERS[name] for name in self._values)
        number = int(index)
        return CONTAINERS[self._container](first(number), second(7 * number))

    def __repr__(self) -> str:
        return f"StrangeSource({self._size}, {self._values}, {self._container})"


class UnsizedSource(StrangeSource):
    """A StrangeSource without a length, so that keys reach it unchanged."""

    __len__ = None  # type: ignore[assignment]
