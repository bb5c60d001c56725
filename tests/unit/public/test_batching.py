"""Tests that batches, their dtypes and their errors match Grain's."""

import collections

import numpy as np
import pytest

from gristmill import batching
from gristmill.errors import ShapeMismatch

grain = pytest.importorskip("grain")
make_batch_of_grain = pytest.importorskip(
    "grain._src.python.dataset.transformations.batch"
).make_batch

Point = collections.namedtuple("Point", "x y")
rng = np.random.default_rng(0)

BATCHES = {
    "float32 rows": [rng.random(16, dtype=np.float32) for _ in range(5)],
    "images": [np.full((3, 4, 2), i, np.uint8) for i in range(4)],
    "one": [np.arange(3)],
    "one scalar": [3],
    "one dict": [{"b": 1.5, "a": "text"}],
    "dicts": [{"b": np.arange(2), "a": i} for i in range(3)],
    "nested": [{"a": [i, (np.float16(i), None)]} for i in range(3)],
    "named tuples": [Point(i, [i]) for i in range(3)],
    "ints": [1, 2, 3],
    "big ints": [2**63, 2**64 - 1],
    "huge ints": [2**70, 1],
    "mixed ints": [2**63, -1],
    "bools": [True, False],
    "bool and int": [True, 2],
    "int and float": [1, 2.5],
    "floats": [0.5, 1.5],
    "complex": [1j, 2j],
    "str": ["a", "longer", ""],
    "bytes": [b"a", b"longer"],
    "numpy scalars": [np.float32(1), np.float32(2)],
    "numpy and python": [np.float32(1), 2.0],
    "promoted": [np.zeros(2, np.float32), np.ones(2)],
    "big endian": [np.zeros(2, ">f4"), np.ones(2, ">f4")],
    "strided": [np.arange(10)[::2], np.arange(5)],
    "read-only": [np.broadcast_to(np.int8(1), (3,))] * 2,
    "zero-dimensional": [np.array(1), np.array(2)],
    "empty": [np.zeros((0, 3)), np.zeros((0, 3))],
    "objects": [np.array(["a", None]), np.array([1, 2], dtype=object)],
    "datetimes": [np.datetime64("2020-01-01"), np.datetime64("2020-01-01T05")],
    "durations": [np.timedelta64(1, "D"), np.timedelta64(1, "h")],
    "records": [np.zeros(2, np.dtype("i1,i8", align=True))] * 2,
    "string arrays": [np.array(["a"]), np.array(["longer"])],
    "nones": [None, None],
    "empty dicts": [{}, {}],
    "key order": [{"a": 1, "b": 2}, {"b": 3, "a": 4}],
    "ordered": [collections.OrderedDict(b=1, a=2), collections.OrderedDict(b=3, a=4)],
    "defaultdict": [collections.defaultdict(int, b=1, a=2)] * 2,
}


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and bool(
            np.all(one == other)
        )
    return one is other


@pytest.mark.parametrize("name", BATCHES)
def test_batches_match_grain(name):
    expected = make_batch_of_grain(BATCHES[name])
    assert same(batching.make_batch(BATCHES[name]), expected)


@pytest.mark.parametrize("name", BATCHES)
def test_batches_in_given_memory_match_grain(name):
    given = []

    def alloc(shape, dtype):
        given.append(np.full(shape, 0, dtype))
        return given[-1]

    batch = batching.make_batch(BATCHES[name], alloc=alloc)
    assert same(batch, make_batch_of_grain(BATCHES[name]))
    for leaf in batching.tree.flatten(batch, "plain")[0]:
        if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
            assert any(leaf is array for array in given)


def test_batch_of_one_is_a_copy():
    row = np.zeros(3)
    batching.make_batch([row])[0][0] = 1
    assert row[0] == 0


UNEQUAL = {
    "shapes": [np.zeros(2), np.zeros(3)],
    "shapes in dicts": [
        {"a": 1, "image": np.zeros((2, 2))},
        {"a": 1, "image": np.zeros(2)},
    ],
    "shapes in lists": [[np.zeros(2), 1], [np.zeros(3), 1]],
    "keys": [{"a": 1}, {"b": 1}],
    "more keys": [{"a": 1}, {"a": 1, "b": 2}],
    "lengths": [[1, 2], [1, 2, 3]],
    "containers": [[1, 2], (1, 2)],
    "dict and array": [{"a": 1}, np.zeros(2)],
    "none": [{"a": None}, {"a": 1}],
    "mixed types": [np.zeros(3), [1.0, 2.0]],
    "third": [np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((3, 2))],
    "python and array": [{"x": 1.0, "y": 2}, Point(1, 2)],
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_error_of_unequal_elements_begins_like_grain(name):
    with pytest.raises(ValueError) as theirs:
        make_batch_of_grain(UNEQUAL[name])
    with pytest.raises(ShapeMismatch) as ours:
        batching.make_batch(UNEQUAL[name])
    assert str(ours.value).startswith(str(theirs.value) + "\n")
    assert "pass batch_fn= to Batch" in str(ours.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "shapes in dicts",
            "element['image']: element 1 of the batch has shape (2,), but element 0 has"
            " (2, 2).",
        ),
        (
            "shapes in lists",
            "element[0]: element 1 of the batch has shape (3,), but element 0"
            " has (2,).",
        ),
        (
            "third",
            "element: element 2 of the batch has shape (3, 2), but element 0"
            " has (2, 3).",
        ),
        ("more keys", "element 1 of the batch has a dict with keys ['a', 'b']"),
        ("dict and array", "element 1 of the batch has a ndarray, but element 0 has"),
    ],
)
def test_error_names_the_element_that_differs(name, words):
    with pytest.raises(ShapeMismatch) as caught:
        batching.make_batch(UNEQUAL[name])
    assert words in str(caught.value)


def test_incompatible_dtypes_raise_type_error_like_grain():
    elements = [np.datetime64("2020-01-01"), 1.5]
    with pytest.raises(TypeError):
        make_batch_of_grain(elements)
    with pytest.raises(TypeError):
        batching.make_batch(elements)


def test_batch_of_no_elements_is_an_error():
    with pytest.raises(ValueError, match=r"^Cannot batch 0 values\."):
        batching.make_batch([])


def test_plain_rules_keep_key_order():
    batch = batching.make_batch([{"b": 1, "a": 2}] * 2, rules="plain")
    assert list(batch) == ["b", "a"]
