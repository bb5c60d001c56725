"""Checks the arguments of packing datasets and computes the layout of rows."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from gristmill import batching
from gristmill._base.types import Rules
from gristmill._hot import tree
from gristmill._hot.layouts import PackLayout

Path: TypeAlias = tuple[Any, ...]


class Features:
    """The leaves of a tree of lengths, and their paths in an element.

    Args:
        struct: Dicts, lists and tuples whose leaves are lengths.

    Attributes:
        treedef: The tree without its leaves.
        lengths: The leaves.
        paths: The keys that lead to each leaf.
        keys: The keys of the leaves if the tree is one flat dict, else None.
        names: The paths as Python subscripts: ``['tokens']``.
        words: The paths as Grain prints them.
    """

    def __init__(self, struct: Any) -> None:
        leaves, self.treedef = tree.flatten(struct, batching.tree_rules())
        # The tree with each leaf replaced by its number.
        self._numbers = tree.unflatten(self.treedef, range(len(leaves)))
        places = sorted(
            _walk_trees(self._numbers, self._numbers), key=operator.itemgetter(0)
        )
        self.paths = tuple(path for _, _, path, _ in places)
        self.words = tuple(
            f"({', '.join(words)}{',' * (len(words) == 1)})" for *_, words in places
        )
        self.names = tuple(
            "".join(f"[{step!r}]" for step in path) for path in self.paths
        )
        self.lengths = tuple(
            at_least(0, length, f"length_struct{name}")
            for length, name in zip(leaves, self.names, strict=True)
        )
        is_flat = type(struct) is dict and all(len(path) == 1 for path in self.paths)
        self.keys = tuple(path[0] for path in self.paths) if is_flat else None

    def leaves_of(self, element: Any) -> list[Any]:
        """Return the leaf of an element at each path. Other leaves are ignored."""
        try:
            return [
                functools.reduce(operator.getitem, path, element) for path in self.paths
            ]
        except (LookupError, TypeError) as error:
            raise KeyError(
                f"An element must have all features of length_struct,"
                f" {', '.join(self.names)}, but one is missing. Add it in a map before"
                " packing."
            ) from error

    def leaves_like(self, struct: Any, name: str) -> tuple[Any, ...]:
        """Return the leaves of a tree with the same structure."""
        try:
            leaves = {
                number: leaf for number, leaf, *_ in _walk_trees(self._numbers, struct)
            }
        except LookupError:
            raise ValueError(
                f"{name} must have the structure of length_struct, with one value for"
                f" each of {', '.join(self.names)}, got {struct!r}."
            ) from None
        return tuple(leaves[number] for number in range(len(leaves)))


def pack_layout(
    struct: Any,
    *,
    rows: int,
    best_fit: bool,
    meta_features: Sequence[str] = (),
    alignments: Any = None,
    paddings: Any = None,
    max_sequences: int | None = None,
) -> PackLayout:
    """Check the arguments of a packing dataset and return the layout of its rows.

    Raises:
        TypeError: A number is not an int, or `struct` is not a dict.
        ValueError: An argument is out of range, or does not match `struct`.
    """
    if not isinstance(struct, dict):
        raise TypeError(
            "length_struct must be a dict of the features' names and lengths, got"
            f" {type(struct).__name__}."
        )
    if isinstance(meta_features, str):
        raise TypeError(
            f"meta_features must be a sequence of names, got one: {meta_features!r}."
            f" Write ({meta_features!r},)."
        )
    features = Features(struct)
    meta_keys = tuple(key for key in meta_features if key not in struct)
    template = _template(features, meta_features, meta_keys)
    columns, treedef = tree.flatten(template, batching.tree_rules())
    is_flat = features.keys is not None
    fields: dict[str, Any] = {}
    if alignments is not None:
        leaves = features.leaves_like(alignments, "pack_alignment_struct")
        fields["alignments"] = tuple(
            at_least(1, leaf, f"pack_alignment_struct{name}")
            for leaf, name in zip(leaves, features.names, strict=True)
        )
    if paddings is not None:
        fields["paddings"] = features.leaves_like(paddings, "padding_struct")
    return make_layout(
        features,
        rows,
        "num_packing_bins",
        max_sequences,
        best_fit=best_fit,
        numbered=tuple(path[0] not in meta_features for path in features.paths),
        meta_keys=meta_keys,
        columns=tuple(columns),
        column_keys=tuple(tree.unflatten(treedef, columns)) if is_flat else None,
        assemble=None if is_flat else functools.partial(tree.unflatten, treedef),
        too_long=f"Inputs to {'packer' if best_fit else 'PackedBatch'} must be"
        " truncated to max length.",
        **fields,
    )


def make_layout(
    features: Features,
    rows: int,
    rows_name: str,
    max_sequences: int | None,
    **fields: Any,
) -> PackLayout:
    """Return a layout with these features and defaults, overridden by `fields`.

    Errors call the argument `rows` by `rows_name`.
    """
    rows = at_least(1, rows, rows_name)
    if max_sequences is not None and max_sequences <= 0:
        raise ValueError(
            "If specified, `max_sequences_per_bin` must be a positive integer, but got"
            f" {max_sequences}."
        )
    count = len(features.paths)
    defaults: dict[str, Any] = {
        "best_fit": False,
        "alignments": (1,) * count,
        "paddings": (None,) * count,
        "numbered": (True,) * count,
        "meta_keys": (),
        "columns": (),
        "column_keys": (),
        "assemble": None,
    }
    return PackLayout(
        rows=rows,
        names=features.names,
        paths=features.words,
        lengths=features.lengths,
        keys=features.keys,
        leaves_of=None if features.keys is not None else features.leaves_of,
        max_sequences=max_sequences or 0,  # 0: no limit.
        **(defaults | fields),
    )


def _template(
    features: Features, meta_features: Sequence[str], meta_keys: tuple[Any, ...]
) -> dict[Any, Any]:
    """Return a packed row with column numbers as leaves.

    Columns are the values of all features, their segment ids, their positions, and then
    the values of `meta_keys`.
    """
    count = len(features.paths)
    template: dict[Any, Any] = tree.unflatten(features.treedef, list(range(count)))
    packed = [key for key in template if key not in meta_features]
    for number, key in enumerate(meta_keys, start=3 * count):
        template[key] = number
    for key in packed:
        number = template[key]
        if isinstance(number, int):  # `check_flat` rejects other values.
            template[f"{key}_segment_ids"] = count + number
            template[f"{key}_positions"] = 2 * count + number
    return template


def check_flat(struct: Any, meta_features: Sequence[str]) -> None:
    """Raise ValueError if a feature that gets segment ids is not one array."""
    for key, length in struct.items():
        is_leaf = tree.flatten(length, batching.tree_rules())[1] == tree.LEAF_DEF
        if key not in meta_features and not is_leaf:
            raise ValueError(
                f"Failed to extract segment ids for '{key}', which has type"
                f" {type(length)} rather than np.ndarray. Perhaps it should be marked"
                " as a meta feature? Add it to meta_features, or make its leaves"
                " features of their own in a map before packing."
            )


def at_least(minimum: int, value: Any, name: str) -> int:
    """Return an argument as an int of at least `minimum`.

    Raises:
        TypeError: The argument is not an int.
        ValueError: It is too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r}.") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}.")
    return number


def _walk_trees(
    numbers: Any, struct: Any, path: Path = (), words: Path = ()
) -> Iterator[tuple[int, Any, Path, Path]]:
    """Walk a tree of numbers and another tree with the same structure.

    Yields:
        (number, the other tree's value in its place, its path, and its path in Grain's
        words).

    Raises:
        LookupError: The other tree has another structure.
    """
    if isinstance(numbers, int):
        yield numbers, struct, path, words
        return
    if not isinstance(numbers, (Mapping, list, tuple)):
        raise TypeError(
            "length_struct must be made of dicts, lists, tuples and ints, got"
            f" {type(numbers).__name__}."
        )
    is_dict = isinstance(numbers, Mapping)
    has_same_type = isinstance(struct, Mapping if is_dict else (list, tuple))
    if not has_same_type or len(struct) != len(numbers):
        raise LookupError
    for step in numbers if is_dict else range(len(numbers)):
        word = _word(numbers, step, batching.tree_rules())
        yield from _walk_trees(
            numbers[step], struct[step], (*path, step), (*words, word)
        )


def _word(container: Any, step: Any, rules: Rules) -> str:
    """Return one step of a path as Grain prints it under the rules for trees."""
    if rules == "plain":
        return repr(step)
    if isinstance(container, Mapping):
        return f"DictKey(key={step!r})"
    if hasattr(container, "_fields"):
        return f"GetAttrKey(name={container._fields[step]!r})"
    return f"SequenceKey(idx={step})"
