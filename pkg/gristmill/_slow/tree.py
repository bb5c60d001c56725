"""Takes elements apart into leaves and puts them together again.

The twin of ``gristmill._hot.tree``, which also calls it for containers that are
rare and for the words about an element that does not fit.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gristmill._hot.signals import StructureMismatch

LEAF, NONE, LIST, TUPLE, NAMEDTUPLE, DICT, ORDERED, DEFAULT, CUSTOM, SEQUENCE = range(
    10
)
MAPPING = 10
RULES = ("jax", "plain")
NATIVE = {
    np.ndarray: LEAF,
    int: LEAF,
    float: LEAF,
    str: LEAF,
    bytes: LEAF,
    bool: LEAF,
    dict: DICT,
    list: LIST,
    tuple: TUPLE,
}
# Their subclasses are leaves, too, also where jax is told to take them apart.
NUMBERS_AND_TEXT = (np.generic, int, float, complex, str, bytes)


@dataclasses.dataclass(frozen=True)
class TreeDef:
    """The containers of an element without its leaves.

    Attributes:
        kind: One of the constants of this module.
        cls: Type of the container, where `kind` does not say it.
        aux: Keys, ``(default_factory, keys)`` or jax's treedef of this one level.
        children: Treedefs of what is in the container, in order.
    """

    kind: int
    cls: type | None
    aux: Any
    children: tuple[TreeDef, ...]

    @property
    def num_leaves(self) -> int:
        """How many leaves there are."""
        if self.kind == LEAF:
            return 1
        return sum(child.num_leaves for child in self.children)


LEAF_DEF = TreeDef(LEAF, None, None, ())


def flatten(tree: Any, rules: str) -> tuple[list[Any], TreeDef]:
    """Return ``(leaves, treedef)`` of an element under rules "jax" or "plain"."""
    level = take_apart(tree, rules)
    if level is None:
        return [tree], LEAF_DEF
    kind, cls, aux, children = level
    flat = [flatten(child, rules) for child in children]
    leaves = [leaf for part, _ in flat for leaf in part]
    return leaves, TreeDef(kind, cls, aux, tuple(treedef for _, treedef in flat))


def unflatten(treedef: TreeDef, leaves: Any) -> Any:
    """Return the element that has these leaves; the opposite of flatten.

    Raises:
        ValueError: There are more or fewer leaves than the treedef has.
    """
    leaves = list(leaves)
    if len(leaves) != treedef.num_leaves:
        raise ValueError(f"expected {treedef.num_leaves} leaves, got {len(leaves)}")
    return _unflatten(treedef, iter(leaves))


def batch_leaves(elements: list[Any], rules: str) -> tuple[list[list[Any]], TreeDef]:
    """Return ``(columns, treedef)`` of B elements: one list of B per leaf.

    The first element says what the structure is; where it has a leaf, the others
    may have anything.

    Raises:
        StructureMismatch: An element does not have the structure of the first.
        ValueError: There are no elements.
    """
    if not elements:
        raise ValueError("Cannot batch 0 values.")
    for position, element in enumerate(elements[1:], 1):
        _check_fits(elements[0], element, rules, position, ())
    columns: list[list[Any]] = []
    return columns, _transpose(list(elements), rules, columns)


def map_batch(
    function: Callable[[list[Any]], Any], elements: list[Any], rules: str
) -> Any:
    """Return one element with ``function(list of B leaves)`` for each leaf.

    Raises:
        StructureMismatch: As batch_leaves.
    """
    columns, treedef = batch_leaves(elements, rules)
    return unflatten(treedef, [function(column) for column in columns])


def take_apart(tree: Any, rules: str) -> tuple[int, type | None, Any, Any] | None:
    """One level of an element: (kind, cls, aux, children), or None for a leaf."""
    kind = _kind(tree, rules)
    if kind == LEAF:
        return None
    if kind == NONE:
        return NONE, None, None, ()
    if kind == CUSTOM:
        level = one_level(tree)
        return None if level is None else (CUSTOM, None, level[1], level[0])
    if kind in (LIST, TUPLE):
        return kind, None, None, tuple(tree)
    if kind in (NAMEDTUPLE, SEQUENCE):
        return kind, type(tree), None, tuple(tree)
    keys = tuple(tree)
    if rules == "jax" and kind != ORDERED:
        # jax sorts the keys of a defaultdict in Python, with Python's error.
        keys = sort_keys(keys) if kind == DICT else tuple(sorted(keys))
    aux = (tree.default_factory, keys) if kind == DEFAULT else keys
    cls = None if kind == DICT else type(tree)
    return kind, cls, aux, tuple(tree[key] for key in keys)


def one_level(tree: Any) -> tuple[list[Any], Any] | None:
    """What jax's registry says of a type that is not built in.

    Returns:
        Its children and jax's treedef with a leaf for each, or None for a leaf.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    util = jax.tree_util
    children, treedef = util.tree_flatten(tree, is_leaf=lambda part: part is not tree)
    # jax's treedef_is_leaf is true of a container without children, too.
    is_leaf = treedef.num_leaves == 1 and treedef.num_nodes == 1
    return None if is_leaf else (children, treedef)


def sort_keys(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """The keys of a dict in jax's order.

    Raises:
        ValueError: They cannot be compared.
    """
    try:
        return tuple(sorted(keys))
    except Exception as error:
        raise ValueError(
            "Comparator raised exception while sorting pytree dictionary keys."
        ) from error


def assemble(kind: int, cls: Any, aux: Any, items: list[Any]) -> Any:
    """Make a container from what is in it."""
    if kind == NONE:
        return None
    if kind == LIST:
        return items
    if kind == TUPLE:
        return tuple(items)
    if kind == NAMEDTUPLE:
        return cls(*items)
    if kind == SEQUENCE:
        return cls(items)
    if kind == CUSTOM:
        return aux.unflatten(items)
    if kind == DEFAULT:
        made = cls(aux[0])
        made.update(zip(aux[1], items, strict=True))
        return made
    return (cls or dict)(zip(aux, items, strict=True))


def split(
    column: list[Any], rules: str
) -> tuple[int, type | None, Any, list[list[Any]]] | None:
    """One level of B elements that fit: their parts, a list of B for each child.

    Returns:
        (kind, cls, aux, parts), or None for leaves.
    """
    level = take_apart(column[0], rules)
    if level is None:
        return None
    kind, cls, aux, first = level
    rows = [first]
    for element in column[1:]:
        rows.append(_children_like(kind, aux, element, rules))
    # Grain's plain rules zip sequences, so the shortest one says how many.
    width = min(map(len, rows))
    return kind, cls, aux, [[row[j] for row in rows] for j in range(width)]


def fits(first: Any, element: Any, rules: str) -> bool:
    """Whether one level of `element` can be matched with that of `first`."""
    ours = take_apart(first, rules)
    if ours is None:
        return True
    if rules == "jax":
        theirs = take_apart(element, rules)
        if theirs is None or ours[:3] != theirs[:3]:
            return False
        return len(ours[3]) == len(theirs[3])
    if isinstance(first, collections.abc.Mapping):
        return isinstance(element, collections.abc.Mapping) and (
            set(first) == set(element)
        )
    return hasattr(element, "__iter__")


def _unflatten(treedef: TreeDef, leaves: Iterator[Any]) -> Any:
    if treedef.kind == LEAF:
        return next(leaves)
    items = [_unflatten(child, leaves) for child in treedef.children]
    return assemble(treedef.kind, treedef.cls, treedef.aux, items)


def _kind(tree: Any, rules: str) -> int:
    if rules not in RULES:
        raise ValueError(f"rules must be 'jax' or 'plain', got {rules!r}")
    kind = NATIVE.get(type(tree))
    if kind is not None:
        return kind
    if tree is None:
        return NONE if rules == "jax" else LEAF
    if isinstance(tree, NUMBERS_AND_TEXT):
        return LEAF
    if isinstance(tree, tuple) and hasattr(type(tree), "_fields"):
        return NAMEDTUPLE
    return _kind_jax(tree) if rules == "jax" else _kind_plain(tree)


def _kind_jax(tree: Any) -> int:
    if type(tree) is collections.OrderedDict:
        return ORDERED
    if type(tree) is collections.defaultdict:
        return DEFAULT
    return CUSTOM if "jax" in sys.modules else LEAF


def _kind_plain(tree: Any) -> int:
    if isinstance(tree, (list, tuple)):
        return SEQUENCE
    if isinstance(tree, collections.defaultdict):
        return DEFAULT
    return MAPPING if isinstance(tree, collections.abc.Mapping) else LEAF


def _transpose(column: list[Any], rules: str, columns: list[list[Any]]) -> TreeDef:
    level = split(column, rules)
    if level is None:
        columns.append(column)
        return LEAF_DEF
    kind, cls, aux, parts = level
    children = tuple(_transpose(part, rules, columns) for part in parts)
    return TreeDef(kind, cls, aux, children)


def _children_like(kind: int, aux: Any, element: Any, rules: str) -> Any:
    if rules == "jax":
        level = take_apart(element, rules)
        assert level is not None
        return level[3]
    if kind in (DICT, MAPPING, DEFAULT):
        keys = aux[1] if kind == DEFAULT else aux
        return tuple(element[key] for key in keys)
    return tuple(element)


def _check_fits(
    first: Any, element: Any, rules: str, position: int, path: tuple[Any, ...]
) -> None:
    level = take_apart(first, rules)
    if level is None:
        return
    kind, _, aux, children = level
    if not fits(first, element, rules):
        expected, found = _describe(first), _describe(element)
        if expected == found:
            found = f"{found} of another kind"
        raise StructureMismatch(position, path, expected, found)
    steps: Any = range(len(children))
    if kind in (DICT, ORDERED, DEFAULT, MAPPING):
        steps = aux[1] if kind == DEFAULT else aux
    others = _children_like(kind, aux, element, rules)
    for step, child, other in zip(steps, children, others, strict=False):
        _check_fits(child, other, rules, position, (*path, step))


def _describe(tree: Any) -> str:
    name = type(tree).__name__
    if isinstance(tree, collections.abc.Mapping):
        return f"a {name} with keys {sorted(tree, key=repr)}"
    if isinstance(tree, (list, tuple)):
        return f"a {name} of {len(tree)}"
    return f"a {name}" if tree is not None else "None"
