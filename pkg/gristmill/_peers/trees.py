"""Grain's functions for elements as trees: dicts, lists and tuples that hold leaves.

If jax is installed, its registry defines the containers; otherwise they are dicts,
lists and tuples.
"""

from __future__ import annotations

import collections
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from gristmill import batching

Path = tuple[Any, ...]
IsLeaf = Callable[[Any], bool] | None


def _jax() -> Any:
    """Return `jax.tree_util`, or None if jax is not installed."""
    if batching.tree_rules() == "plain":
        return None
    return importlib.import_module("jax.tree_util")


def map_structure(
    f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None
) -> Any:
    """Return the tree of a function's results for the leaves of one or more trees."""
    return map_structure_with_path(
        lambda path, *leaves: f(*leaves), tree, *rest, is_leaf=is_leaf
    )


def map_structure_with_path(
    f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None
) -> Any:
    """Like `map_structure`, but pass the path of a leaf to the function first."""
    if util := _jax():
        return util.tree_map_with_path(f, tree, *rest, is_leaf=is_leaf)
    return _map(f, (), (tree, *rest), is_leaf)


def map_structure_up_to(
    shallow_structure: Any, f: Callable[[Any], Any], structure: Any
) -> Any:
    """Apply a function to the parts of a tree at the leaves of a shallower tree."""
    pair = shallow_structure, structure
    return _map(lambda path, shallow, part: f(part), (), pair, None)


def flatten(structure: Any) -> list[Any]:
    """Return the leaves of a tree."""
    return [leaf for _, leaf in flatten_with_path(structure)]


def flatten_with_path(structure: Any) -> list[tuple[Path, Any]]:
    """Return pairs of the path and the leaf for each leaf of a tree."""
    pairs: list[tuple[Path, Any]] = []
    if util := _jax():
        pairs = util.tree_flatten_with_path(structure)[0]
    else:
        _map(lambda *pair: pairs.append(pair), (), (structure,), None)
    return pairs


def unflatten_as(structure: Any, flat_sequence: Iterable[Any]) -> Any:
    """Return a tree of the same structure with other leaves."""
    if util := _jax():
        return util.tree_unflatten(util.tree_structure(structure), flat_sequence)
    leaves = iter(flat_sequence)
    return _map(lambda path, leaf: next(leaves), (), (structure,), None)


def assert_same_structure(a: Any, b: Any) -> None:
    """Raise ValueError (AssertionError without jax) if structures differ."""
    if util := _jax():
        first, second = util.tree_structure(a), util.tree_structure(b)
        if first != second:
            raise ValueError(f"Structures are not the same: a = {first}, b = {second}")
    else:
        _assert_same(a, b, "")


def spec_like(structure: Any) -> Any:
    """Return the same tree with descriptions of the leaves: their types and shapes."""
    return batching.spec_like(structure, batching.tree_rules())


def estimate_byte_size(structure: Any) -> int:
    """Return the size of the arrays and texts of a tree; other leaves count 0."""
    total = 0
    for leaf in flatten(structure):
        if isinstance(leaf, (bytes, str)):
            total += len(leaf)
        elif isinstance(leaf, np.ndarray):
            total += leaf.nbytes
    return total


def _map(
    f: Callable[..., Any], path: Path, trees: Iterable[Any], is_leaf: IsLeaf
) -> Any:
    """Return the tree of a function's results; the first tree defines the leaves.

    Args:
        f: Called with the path of a leaf, and the leaf of each tree.
        path: The path of `trees` in the whole trees.
        trees: The trees.
        is_leaf: Returns whether to treat a part of the first tree as a leaf; None if
            all containers are walked.
    """
    first, *others = trees
    if is_leaf is not None and is_leaf(first):
        return f(path, first, *others)
    if isinstance(first, (list, tuple)):
        items = [
            _map(f, (*path, position), parts, is_leaf)
            for position, parts in enumerate(zip(first, *others, strict=False))
        ]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    if isinstance(first, Mapping):
        mapped = {
            key: _map(
                f, (*path, key), (tree[key] for tree in (first, *others)), is_leaf
            )
            for key in first
        }
        if isinstance(first, collections.defaultdict):
            return type(first)(first.default_factory, mapped)
        return type(first)(mapped)  # type: ignore[call-arg]
    return f(path, first, *others)


def _assert_same(a: Any, b: Any, where: str) -> None:
    """Raise AssertionError if structures differ; `where` is their path, for texts."""
    containers = (list, tuple, Mapping)
    if isinstance(a, containers) and not isinstance(a, type(b)):
        raise AssertionError(
            f"The two structures don't match: {where or 'they'} are {type(a)} and"
            f" {type(b)}"
        )
    keys: Iterable[Any]
    if isinstance(a, Mapping):
        is_same, keys = set(a) == set(b), a
    elif isinstance(a, (list, tuple)):
        is_same, keys = len(a) == len(b), range(len(a))
    else:
        return
    if not is_same:
        raise AssertionError(
            f"The two structures don't match: {where or 'they'} have {len(a)} and"
            f" {len(b)} items, or other keys: {a!r} and {b!r}"
        )
    for key in keys:
        _assert_same(a[key], b[key], f"{where}[{key!r}]")
