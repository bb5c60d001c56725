"""Tests that functions for trees match Grain's, with and without jax."""

import collections
import dataclasses
import importlib.util
import sys

import numpy as np
import pytest

from gristmill import batching
from gristmill._peers import trees

tree_lib = pytest.importorskip("grain._src.core.tree_lib")

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Record:
    values: object
    name: str


TREES = [
    Record(np.zeros((2, 3)), "text"),
    {"b": [Record([1, 2], "a"), Record({}, "b")], "a": 1},
    3,
    {"b": 1, "a": [2, (3, "text")]},
    Point(np.zeros(2), {"k": b"bytes"}),
    collections.defaultdict(list, {"z": 1, "y": 2}),
    [],
    {"empty": {}, "none": None},
    collections.OrderedDict([("b", 1), ("a", [2.5, 3])]),
]


@pytest.fixture(params=["jax", "plain"])
def theirs(request, monkeypatch):
    """Return Grain's module with or without jax, and make ours use the same rules."""
    if request.param == "jax":
        return tree_lib
    monkeypatch.setattr(batching, "tree_rules", lambda: "plain")
    monkeypatch.setitem(sys.modules, "jax", None)
    spec = importlib.util.spec_from_file_location("plain_tree_lib", tree_lib.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text(value):
    return repr(value)


@pytest.mark.parametrize("tree", TREES, ids=text)
def test_flatten_and_map_match_grain(theirs, tree):
    def pair(*leaves):
        return str(leaves)

    def is_leaf(part):
        return isinstance(part, list)

    for function in (
        lambda lib: lib.flatten(tree),
        lambda lib: lib.flatten_with_path(tree),
        lambda lib: lib.unflatten_as(tree, range(len(lib.flatten(tree)))),
        lambda lib: lib.map_structure(pair, tree),
        lambda lib: lib.map_structure(pair, tree, tree),
        lambda lib: lib.map_structure(pair, tree, is_leaf=is_leaf),
        lambda lib: lib.map_structure_with_path(pair, tree),
        lambda lib: lib.map_structure_up_to(tree, pair, tree),
        lambda lib: lib.spec_like(tree),
        lambda lib: lib.estimate_byte_size(tree),
        lambda lib: lib.assert_same_structure(tree, tree),
    ):
        assert text(function(trees)) == text(function(theirs))


def test_map_up_to_shallower_tree_passes_subtrees(theirs):
    shallow, deep = {"a": 0, "b": [0]}, {"a": [1, 2], "b": [{"c": 3}, 4], "d": 5}
    expected = {"a": "[1, 2]", "b": ["{'c': 3}"]}
    assert theirs.map_structure_up_to(shallow, str, deep) == expected
    assert trees.map_structure_up_to(shallow, str, deep) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [([1, 2], [1]), ({"a": 1}, {"b": 1}), ({"a": [1]}, {"a": (1,)}), ([[1]], [[1, 2]])],
)
def test_different_structures_raise_grain_error_type(theirs, one, other):
    kind = ValueError if theirs is tree_lib else AssertionError
    with pytest.raises(kind):
        theirs.assert_same_structure(one, other)
    with pytest.raises(kind):
        trees.assert_same_structure(one, other)
