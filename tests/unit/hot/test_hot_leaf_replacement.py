"""gristmill._hot.leaf_replacement replaces the leaves of one type."""

from __future__ import annotations

import collections
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from gristmill._hot.leaf_replacement import NotPlainError, replace_leaves


class Leaf:
    """A leaf type that is replaced."""


class OwnLeaf(Leaf):
    """A leaf type that is not replaced."""


def replaced(tree: Any) -> Any:
    return replace_leaves(tree, Leaf, lambda leaf: "new")


def model(tree: Any) -> Any:
    """Return the expected result for a tree."""
    if isinstance(tree, dict):
        return {key: model(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map(model, tree))
    return "new" if isinstance(tree, Leaf) else tree


ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=2)
    | st.binary(max_size=2)
    | st.complex_numbers(allow_nan=False)
)
TREES = st.recursive(
    ATOMS | st.builds(Leaf),
    lambda parts: (
        st.lists(parts)
        | st.lists(parts).map(tuple)
        | st.dictionaries(ATOMS, parts)
        | st.lists(ATOMS, min_size=20, max_size=30)
    ),
    max_leaves=40,
)


@hypothesis.given(TREES)
@hypothesis.settings(max_examples=50, deadline=None)
def test_leaves_of_any_tree_are_replaced(tree):
    got, want = replaced(tree), model(tree)
    assert repr(got) == repr(want)


@pytest.mark.parametrize("n", [1, 100])
def test_containers_without_leaves_are_not_copied(n):
    shared: list[Any] = [{"a": (1, "b")}] * n
    got = replaced([shared, {"x": Leaf(), "y": shared}])
    assert got == [shared, {"x": "new", "y": shared}]
    assert got[0] is shared and got[1]["y"] is shared


def test_original_tree_is_not_changed():
    leaf = Leaf()
    tree = {"a": [leaf], "b": (leaf, 1)}
    replaced(tree)
    assert tree == {"a": [leaf], "b": (leaf, 1)}


@pytest.mark.parametrize(
    "part",
    [
        OwnLeaf(),
        object(),
        {1, 2},
        {(1, 2): 3},
        {Leaf(): 3},
        collections.OrderedDict(a=1),
        collections.namedtuple("Pair", "a b")(1, 2),
        bytearray(b"x"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_tree_of_other_types_is_rejected(part):
    for tree in (part, [part], {"a": (1, part)}):
        with pytest.raises(NotPlainError):
            replaced(tree)


def test_recursive_containers_are_rejected():
    inside_list: list[Any] = [1]
    inside_list.append(inside_list)
    inside_dict: dict[str, Any] = {"a": Leaf()}
    inside_dict.update(b=inside_dict, c=inside_dict)
    for tree in (inside_list, inside_dict, {"deep": (inside_list, inside_dict)}):
        with pytest.raises(NotPlainError):
            replaced(tree)


def test_repeated_large_container_of_leaves_is_rejected():
    shared = [Leaf() for _ in range(100)]
    assert replaced([shared, 1]) == [["new"] * 100, 1]
    with pytest.raises(NotPlainError):
        replaced([shared, {"again": shared}])


def test_errors_of_the_function_are_raised():
    def fail(leaf: Leaf) -> None:
        raise KeyError("leaf")

    with pytest.raises(KeyError, match="leaf"):
        replace_leaves([1, [Leaf()]], Leaf, fail)
