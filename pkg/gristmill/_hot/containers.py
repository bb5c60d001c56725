"""Takes containers of elements apart and puts them together, one level at a time.

There are two sets of rules: "jax" are those of jax.tree_util, "plain" are those of
Grain without jax.  The compiled loops in `tree` handle dicts, lists and tuples
themselves, and call this module for all other types.
"""

from __future__ import annotations

import collections
import collections.abc
import sys
from typing import Any, NoReturn

import numpy as np

from gristmill._hot.exceptions import StructureMismatchError

# The kinds of containers.  CUSTOM is a type in jax's registry, SEQUENCE and MAPPING are
# other types under the plain rules.
LEAF, NONE, LIST, TUPLE, NAMEDTUPLE, DICT, ORDERED, DEFAULT, CUSTOM, SEQUENCE = range(
    10
)
MAPPING = 10
# The kinds of types under both sets of rules.
NATIVE: dict[type, int] = {dict: DICT, list: LIST, tuple: TUPLE} | dict.fromkeys(
    (np.ndarray, int, float, str, bytes, bool), LEAF
)
JAX_MAPPINGS: dict[type, int] = {
    collections.OrderedDict: ORDERED,
    collections.defaultdict: DEFAULT,
}
# Their subclasses are leaves, too, even if they are registered with jax as containers.
NUMBERS_AND_TEXT = (np.generic, int, float, complex, str, bytes)

# (kind, cls, aux, children) of a container.  `cls` is its type if the kind does not
# imply it, else None.  `aux` are its keys, or other data needed to make it.
TreeLevel = tuple[int, type | None, Any, Any]


class MisfitError(Exception):
    """Raised if an element does not fit the first one; see `raise_mismatch`."""


def take_apart(tree: Any, jax: bool) -> TreeLevel | None:
    """Return one level of an element by jax's or the plain rules; None for a leaf."""
    kind = _kind(tree, jax)
    if kind == LEAF:
        return None
    if kind == NONE:
        return NONE, None, None, ()
    if kind == CUSTOM:
        return _custom_level(tree)
    if kind in (LIST, TUPLE):
        return kind, None, None, tuple(tree)
    if kind in (NAMEDTUPLE, SEQUENCE):
        return kind, type(tree), None, tuple(tree)
    keys = tuple(tree)
    if jax and kind != ORDERED:
        # jax sorts the keys of a defaultdict in Python, and raises Python's error.
        keys = sort_keys(keys) if kind == DICT else tuple(sorted(keys))
    aux = (tree.default_factory, keys) if kind == DEFAULT else keys
    cls = None if kind == DICT else type(tree)
    return kind, cls, aux, tuple(tree[key] for key in keys)


def assemble(kind: int, cls: Any, aux: Any, items: list[Any]) -> Any:
    """Make a container from its children."""
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
        result = cls(aux[0])
        result.update(zip(aux[1], items, strict=True))
        return result
    return (cls or dict)(zip(aux, items, strict=True))


def sort_keys(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the keys of a dict in jax's order."""
    try:
        return tuple(sorted(keys))
    except Exception as error:
        raise ValueError(
            "Comparator raised exception while sorting pytree dictionary keys."
        ) from error


def split(
    column: list[Any], jax: bool
) -> tuple[int, type | None, Any, list[list[Any]]] | None:
    """Take one level of B elements apart, or raise MisfitError.

    Returns:
        (kind, cls, aux, parts), with a list of B for each child; None for leaves.
    """
    level = take_apart(column[0], jax)
    if level is None:
        return None
    kind, cls, aux, first = level
    rows = [first]
    for element in column[1:]:
        children = _children_like(column[0], level, element, jax)
        if children is None:
            raise MisfitError
        rows.append(children)
    # Grain's plain rules zip sequences, so the shortest one determines the width.
    width = min(map(len, rows))
    return kind, cls, aux, [[row[j] for row in rows] for j in range(width)]


def raise_mismatch(elements: list[Any], jax: bool) -> NoReturn:
    """Raise StructureMismatchError for the first element that does not fit element 0.

    REQUIRES: at least one element does not fit.
    """
    for position, element in enumerate(elements[1:], 1):
        _check_fits(elements[0], element, jax, position, ())
    raise AssertionError(elements)  # The requirement was violated.


def _kind(tree: Any, jax: bool) -> int:
    """Return the kind of an element; CUSTOM may turn out to be a leaf for jax."""
    kind = NATIVE.get(type(tree))
    if kind is not None:
        return kind
    if tree is None:
        return NONE if jax else LEAF
    if isinstance(tree, NUMBERS_AND_TEXT):
        return LEAF
    if isinstance(tree, tuple) and hasattr(type(tree), "_fields"):
        return NAMEDTUPLE
    if jax:
        default = CUSTOM if "jax" in sys.modules else LEAF
        return JAX_MAPPINGS.get(type(tree), default)
    if isinstance(tree, (list, tuple)):
        return SEQUENCE
    if isinstance(tree, collections.defaultdict):
        return DEFAULT
    return MAPPING if isinstance(tree, collections.abc.Mapping) else LEAF


def _custom_level(tree: Any) -> TreeLevel | None:
    """Return the level of a type in jax's registry; None if it is a leaf."""
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    util = jax.tree_util
    children, treedef = util.tree_flatten(tree, is_leaf=lambda part: part is not tree)
    # jax's treedef_is_leaf is true of a container without children, too.
    is_leaf = treedef.num_leaves == 1 and treedef.num_nodes == 1
    return None if is_leaf else (CUSTOM, None, treedef, children)


def _children_like(first: Any, level: TreeLevel, element: Any, jax: bool) -> Any:
    """Return the children of an element in the order of the first element's level.

    Returns None if the element does not fit.
    """
    kind, _, aux, children = level
    if jax:
        other = take_apart(element, jax)
        if other is None or level[:3] != other[:3]:
            return None
        return other[3] if len(children) == len(other[3]) else None
    if isinstance(first, collections.abc.Mapping):
        has_same_keys = isinstance(element, collections.abc.Mapping) and (
            set(first) == set(element)
        )
        keys = aux[1] if kind == DEFAULT else aux
        return tuple(element[key] for key in keys) if has_same_keys else None
    # By the plain rules, any iterable fits a list or a tuple, also of another length.
    return tuple(element) if hasattr(element, "__iter__") else None


def _check_fits(
    first: Any, element: Any, jax: bool, position: int, path: tuple[Any, ...]
) -> None:
    """Raise StructureMismatchError unless an element fits the first one.

    They are the parts at `path` of element `position` of the batch, and of element 0.
    """
    level = take_apart(first, jax)
    if level is None:
        return
    kind, _, aux, children = level
    other_children = _children_like(first, level, element, jax)
    if other_children is None:
        expected, found = _describe(first), _describe(element)
        if expected == found:
            found = f"{found} of another kind"
        raise StructureMismatchError(position, path, expected, found)
    keys: Any = range(len(children))
    if kind in (DICT, ORDERED, DEFAULT, MAPPING):
        keys = aux[1] if kind == DEFAULT else aux
    for key, child, other in zip(keys, children, other_children, strict=False):
        _check_fits(child, other, jax, position, (*path, key))


def _describe(tree: Any) -> str:
    name = type(tree).__name__
    if isinstance(tree, collections.abc.Mapping):
        return f"a {name} with keys {sorted(tree, key=repr)}"
    if isinstance(tree, (list, tuple)):
        return f"a {name} of {len(tree)}"
    return f"a {name}" if tree is not None else "None"
