"""gristmill._hot.tree, compared with jax.tree_util and Grain's own rules."""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib.util
import pickle
import sys
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill._hot import tree
from gristmill._hot.exceptions import StructureMismatchError

Point = collections.namedtuple("Point", "x y")


class OwnList(list):
    """A list that jax treats as a leaf."""


class OwnDict(dict):
    """A dict that jax treats as a leaf."""


class OwnTuple(tuple):
    """A tuple that jax treats as a leaf."""


TREES: list[Any] = [
    1,
    None,
    "text",
    np.float32(2),
    [],
    {},
    (),
    {"b": 1, "a": 2},
    {"b": [1, {"z": 2, "y": None}], "a": (3, Point(4, [5]))},
    {2: "x", 1: "y"},
    [None, (None,), {"a": None}],
    collections.OrderedDict([("b", 1), ("a", [2, 3])]),
    collections.defaultdict(list, {"b": 1, "a": 2}),
    OwnList([1, 2]),
    OwnDict(a=1, b=[2]),
    OwnTuple((1, 2)),
    Point({"q": 1}, None),
]

PAIRS = [
    ({"a": 1, "b": 2}, {"b": 3, "a": 4}),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": 1}, OwnDict(a=1)),
    ({"a": [1, 2]}, {"a": [1]}),
    ([1], (1,)),
    ([1, 2], [3, 4]),
    ((1, 2), Point(1, 2)),
    (Point(1, 2), Point(3, 4)),
    (Point(1, 2), (3, 4)),
    (None, 1),
    (1, None),
    (1, [1, 2]),
    ([1, 2], 1),
    ({"a": {}}, {"a": {"x": 1}}),
    ({"a": 1}, [1]),
    (
        collections.OrderedDict([("a", 1), ("b", 2)]),
        collections.OrderedDict([("b", 1), ("a", 2)]),
    ),
    (
        collections.defaultdict(int, {"a": 1}),
        collections.defaultdict(list, {"a": 1}),
    ),
    (
        collections.defaultdict(int, {"b": 1, "a": 2}),
        collections.defaultdict(int, {"a": 1, "b": 2}),
    ),
]


@pytest.fixture(scope="module")
def plain_grain() -> types.ModuleType:
    """Return Grain's tree module as it is without jax."""
    from grain._src.core import tree_lib

    spec = importlib.util.spec_from_file_location("plain_tree_lib", tree_lib.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "jax", None)
        spec.loader.exec_module(module)
    return module


def same(a: Any, b: Any) -> bool:
    """Return whether two trees are equal, with equal types and order of keys."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("element", TREES, ids=repr)
def test_flattens_as_jax(element: Any) -> None:
    jax_util = pytest.importorskip("jax").tree_util
    leaves, treedef = tree.flatten(element, "jax")
    expected, jax_def = jax_util.tree_flatten(element)
    assert same(leaves, expected)
    assert treedef.num_leaves == len(expected)
    renamed = list(range(len(leaves)))
    assert same(
        tree.unflatten(treedef, renamed), jax_util.tree_unflatten(jax_def, renamed)
    )


@pytest.mark.parametrize("element", TREES, ids=repr)
def test_flattens_as_grain_without_jax(
    plain_grain: types.ModuleType, element: Any
) -> None:
    leaves, treedef = tree.flatten(element, "plain")
    assert same(leaves, plain_grain.flatten(element))
    renamed = list(range(len(leaves)))
    assert same(
        tree.unflatten(treedef, renamed), plain_grain.unflatten_as(element, renamed)
    )


def test_registered_types_are_flattened_by_jax() -> None:
    jax_util = pytest.importorskip("jax").tree_util

    @jax_util.register_pytree_node_class
    class Pair:
        def __init__(self, *parts: Any) -> None:
            self.parts = parts

        def tree_flatten(self) -> Any:
            return self.parts, "pair"

        @classmethod
        def tree_unflatten(cls, aux: Any, parts: Any) -> Any:
            return cls(*parts)

    leaves, treedef = tree.flatten({"p": Pair(1, {"b": None, "a": 2})}, "jax")
    assert leaves == [1, 2]
    made = tree.unflatten(treedef, [10, 20])["p"]
    assert isinstance(made, Pair) and made.parts == (10, {"a": 20, "b": None})
    columns, _ = tree.batch_leaves([Pair(1, 2), Pair(3, 4)], "jax")
    assert columns == [[1, 3], [2, 4]]
    with pytest.raises(StructureMismatchError):
        tree.batch_leaves([Pair(1, 2), Pair(3)], "jax")


@dataclasses.dataclass
class Pose:
    """Registered with jax: `turn` is a leaf, `name` is not."""

    turn: Any
    name: str


class Custom:
    """Registered with jax: the children in reverse, None for a missing one."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and self.parts == other.parts

    __hash__ = None  # type: ignore[assignment]


@functools.cache
def jax_with_own_types() -> Any:
    jax_util = pytest.importorskip("jax").tree_util
    jax_util.register_dataclass(Pose, ["turn"], ["name"])
    jax_util.register_pytree_node(
        Custom,
        lambda node: (node.parts[::-1], len(node.parts)),
        lambda _, parts: Custom(*parts[::-1]),
    )
    return jax_util


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(["a", "b", "c", "B", ""]) | st.integers(0, 2)
    pairs = st.lists(st.tuples(keys, children), max_size=3)
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        pairs.map(dict),
        pairs.map(collections.OrderedDict),
        pairs.map(lambda items: collections.defaultdict(list, items)),
        pairs.map(lambda items: collections.defaultdict(None, items)),
        pairs.map(OwnDict),
        st.builds(Point, children, children),
        st.builds(Pose, children, st.sampled_from(["x", "y"])),
        st.lists(children, max_size=2).map(lambda parts: Custom(*parts)),
    )


ELEMENTS = st.recursive(
    st.none() | st.integers(0, 9) | st.just("text") | st.just(np.float32(1)),
    containers,
    max_leaves=12,
)


def outcome(call: Any) -> Any:
    """Return the result of a call, or the type and first line of its error."""
    try:
        return call()
    except (ValueError, TypeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


@given(element=ELEMENTS)
def test_flattens_random_elements_as_jax(element: Any) -> None:
    jax_util = jax_with_own_types()
    expected = outcome(lambda: jax_util.tree_flatten(element))
    found = outcome(lambda: tree.flatten(element, "jax"))
    if isinstance(expected, str):
        assert found == expected
        return
    assert same(found[0], expected[0])
    renamed = list(range(len(found[0])))
    assert same(
        tree.unflatten(found[1], renamed), jax_util.tree_unflatten(expected[1], renamed)
    )


@given(elements=st.lists(ELEMENTS, min_size=1, max_size=3), repeat=st.booleans())
def test_batches_random_elements_as_jax(elements: list[Any], repeat: bool) -> None:
    jax_util = jax_with_own_types()
    if repeat:  # Otherwise most elements differ.
        elements = [elements[0], elements[0], *elements]
    try:
        expected = jax_util.tree_map(lambda *leaves: Leaves(leaves), *elements)
    except (ValueError, TypeError):
        with pytest.raises((ValueError, TypeError)):
            tree.batch_leaves(elements, "jax")
        return
    assert same(tree.map_batch(Leaves, elements, "jax"), expected)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(element=ELEMENTS)
def test_flattens_random_elements_as_grain_without_jax(
    plain_grain: types.ModuleType, element: Any
) -> None:
    leaves, treedef = tree.flatten(element, "plain")
    assert same(leaves, plain_grain.flatten(element))
    renamed = list(range(len(leaves)))
    assert same(
        tree.unflatten(treedef, renamed), plain_grain.unflatten_as(element, renamed)
    )


@pytest.mark.parametrize("rules", ["jax", "plain"])
def test_recursive_elements_raise_recursion_error(rules: str) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        tree.flatten(endless, rules)
    with pytest.raises(RecursionError):
        tree.batch_leaves([endless, endless], rules)


def test_unknown_types_are_leaves_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    thing = object()
    assert tree.flatten([thing], "jax")[0] == [thing]


def test_unsortable_keys_raise_error_of_jax() -> None:
    with pytest.raises(ValueError, match=r"^Comparator raised exception while sort"):
        tree.flatten({1: 1, "a": 2}, "jax")


def test_equal_keys_of_other_types_keep_their_type() -> None:
    for element in ({1: "x"}, {True: "x"}, {"1": "x"}):
        leaves, treedef = tree.flatten(element, "jax")
        assert same(tree.unflatten(treedef, leaves), element)


@pytest.mark.parametrize("rules", ["jax", "plain"])
def test_treedef_is_comparable_and_picklable(rules: str) -> None:
    defs = [tree.flatten(element, rules)[1] for element in TREES]
    again = [tree.flatten(element, rules)[1] for element in TREES]
    assert defs == again
    assert pickle.loads(pickle.dumps(defs)) == defs
    assert tree.flatten([1], rules)[1] != tree.flatten((1,), rules)[1]
    assert tree.flatten({"a": 1}, rules)[1] != tree.flatten({"b": 1}, rules)[1]


def test_unflatten_checks_the_leaf_count() -> None:
    _, treedef = tree.flatten([1, 2], "jax")
    with pytest.raises(ValueError, match="2 items, got 3"):
        tree.unflatten(treedef, [1, 2, 3])


def test_unknown_rules_are_rejected() -> None:
    with pytest.raises(ValueError, match="rules must be 'jax' or 'plain', got 'x'"):
        tree.flatten(1, "x")


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_batches_two_elements_as_jax(pair: tuple[Any, Any]) -> None:
    jax_util = pytest.importorskip("jax").tree_util
    try:
        expected = jax_util.tree_map(lambda *leaves: Leaves(leaves), *pair)
    except ValueError:
        with pytest.raises(StructureMismatchError) as caught:
            tree.batch_leaves(list(pair), "jax")
        assert caught.value.position == 1
        return
    assert same(tree.map_batch(Leaves, list(pair), "jax"), expected)


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_batches_two_elements_as_grain_without_jax(
    plain_grain: types.ModuleType, pair: tuple[Any, Any]
) -> None:
    try:
        expected = plain_grain.map_structure(lambda *leaves: Leaves(leaves), *pair)
    except (KeyError, TypeError):
        with pytest.raises(StructureMismatchError):
            tree.batch_leaves(list(pair), "plain")
        return
    assert same(tree.map_batch(Leaves, list(pair), "plain"), expected)


class Leaves:
    """The leaves at one path of all elements; itself a leaf."""

    def __init__(self, leaves: Any) -> None:
        self.leaves = tuple(leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Leaves) and self.leaves == other.leaves

    __hash__ = None  # type: ignore[assignment]


def test_batch_has_one_column_per_leaf() -> None:
    elements = [{"y": i, "x": [i * 10, (i * 100,)]} for i in range(4)]
    columns, treedef = tree.batch_leaves(elements, "jax")
    assert columns == [[0, 10, 20, 30], [0, 100, 200, 300], [0, 1, 2, 3]]
    assert tree.unflatten(treedef, "abc") == {"x": ["a", ("b",)], "y": "c"}


def test_columns_are_copies_of_the_element_list() -> None:
    elements = [1, 2]
    columns, _ = tree.batch_leaves(elements, "jax")
    columns[0].append(3)
    assert elements == [1, 2]


def test_mismatch_names_the_first_misfit() -> None:
    fits = {"a": 1, "b": {"c": [1, 2]}}
    misfit = {"a": 1, "b": {"c": [1]}}
    with pytest.raises(StructureMismatchError) as caught:
        tree.batch_leaves([fits, fits, misfit, {"a": 1}], "jax")
    assert caught.value.position == 2
    assert caught.value.path == ("b", "c")
    assert str(caught.value) == (
        "element['b']['c']: element 2 of the batch has a list of 1,"
        " but element 0 has a list of 2"
    )


def test_elements_deeper_than_the_stack_raise() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    deep: Any = 1
    for _ in range(100_000):
        deep = (deep,)
    for element in (circle, deep):
        for rules in ("jax", "plain"):
            with pytest.raises(RecursionError):
                tree.flatten(element, rules)
            with pytest.raises(RecursionError):
                tree.batch_leaves([element, element], rules)


def test_empty_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match="Cannot batch 0 values"):
        tree.batch_leaves([], "jax")
