"""What the arguments of packing say about rows: checked, and as plain data."""

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
    """The leaves of a tree of lengths, and how to find the same in an element.

    Args:
        struct: Dicts, lists and tuples whose leaves are lengths.

    Attributes:
        treedef: The tree without its leaves.
        lengths: The leaves.
        paths: The keys that lead to each.
        keys: The keys of the leaves if the tree is one flat dict, else None.
        names: The paths in words: ``['tokens']``.
        words: The paths as Grain prints them.

    Raises:
        TypeError: A leaf is no int.
        ValueError: A length is negative.
    """

    def __init__(self, struct: Any) -> None:
        rules = batching.tree_rules()
        leaves, self.treedef = tree.flatten(struct, rules)
        self._numbers = tree.unflatten(self.treedef, list(range(len(leaves))))
        places = dict(_places(self._numbers, (), (), rules))
        self.paths = tuple(places[number][0] for number in range(len(leaves)))
        self.words = tuple(
            f"({', '.join(words)}{',' * (len(words) == 1)})"
            for _, words in map(places.__getitem__, range(len(leaves)))
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
        """What an element has at each path; it may have more beside.

        Raises:
            KeyError: It lacks one.
        """
        try:
            return [
                functools.reduce(operator.getitem, path, element) for path in self.paths
            ]
        except (LookupError, TypeError) as error:
            raise KeyError(
                f"an element does not have all of {', '.join(self.names)}, which"
                " length_struct names. Add what is missing in a map before packing."
            ) from error

    def leaves_like(self, struct: Any, name: str) -> tuple[Any, ...]:
        """The leaves of a tree of the same containers.

        Raises:
            ValueError: Its containers differ.
        """
        leaves: list[Any] = [None] * len(self.paths)
        try:
            for number, leaf in _beside(self._numbers, struct):
                leaves[number] = leaf
        except LookupError:
            raise ValueError(
                f"{name} must have the structure of length_struct, with one value for"
                f" each of {', '.join(self.names)}, but it is {struct!r}."
            ) from None
        return tuple(leaves)


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
    """Check the arguments of a packing dataset and say what its rows are made of.

    Raises:
        TypeError: A number is no int, or `struct` no dict.
        ValueError: An argument is out of range, or does not fit to `struct`.
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
    return bare_layout(
        features,
        rows=rows,
        best_fit=best_fit,
        max_sequences=max_sequences,
        alignments=_alignments(features, alignments),
        paddings=_paddings(features, paddings),
        numbered=tuple(path[0] not in meta_features for path in features.paths),
        meta_keys=meta_keys,
        columns=tuple(columns),
        column_keys=tuple(tree.unflatten(treedef, columns)) if is_flat else None,
        assemble=None if is_flat else functools.partial(tree.unflatten, treedef),
        too_long=f"Inputs to {'packer' if best_fit else 'PackedBatch'} must be"
        " truncated to max length.",
    )


def bare_layout(features: Features, **more: Any) -> PackLayout:
    """The layout of rows with these features, and `more` of its attributes.

    Raises:
        ValueError: ``rows`` or ``max_sequences`` is not positive.
    """
    limit = more.pop("max_sequences")
    rows = at_least(1, more.pop("rows"), "the number of rows")
    if limit is not None and limit <= 0:
        raise ValueError(
            "If specified, `max_sequences_per_bin` must be a positive integer, but got"
            f" {limit}."
        )
    return PackLayout(
        rows=rows,
        names=features.names,
        paths=features.words,
        lengths=features.lengths,
        keys=features.keys,
        leaves_of=None if features.keys is not None else features.leaves_of,
        max_sequences=limit or 0,
        **more,
    )


def _template(
    features: Features, meta_features: Sequence[str], meta_keys: tuple[Any, ...]
) -> dict[Any, Any]:
    """A packed row with the number of its column in place of each leaf."""
    count = len(features.paths)
    template: dict[Any, Any] = tree.unflatten(features.treedef, list(range(count)))
    packed = [key for key in template if key not in meta_features]
    for number, key in enumerate(meta_keys, start=3 * count):
        template[key] = number
    for key in packed:
        number = template[key]
        if isinstance(number, int):  # Others are refused by `check_flat`.
            template[f"{key}_segment_ids"] = count + number
            template[f"{key}_positions"] = 2 * count + number
    return template


def check_flat(struct: Any, meta_features: Sequence[str]) -> None:
    """See that every feature that gets segment ids is one array.

    Raises:
        ValueError: One has a structure of its own.
    """
    for key, length in struct.items():
        is_leaf = tree.flatten(length, batching.tree_rules())[1] == tree.LEAF_DEF
        if key not in meta_features and not is_leaf:
            raise ValueError(
                f"Failed to extract segment ids for '{key}', which has type"
                f" {type(length)} rather than np.ndarray. Perhaps it should be marked"
                " as a meta feature? Add it to meta_features, or make its leaves"
                " features of their own in a map before packing."
            )


def _alignments(features: Features, struct: Any) -> tuple[int, ...]:
    if struct is None:
        return (1,) * len(features.paths)
    leaves = features.leaves_like(struct, "pack_alignment_struct")
    return tuple(
        at_least(1, leaf, f"pack_alignment_struct{name}")
        for leaf, name in zip(leaves, features.names, strict=True)
    )


def _paddings(features: Features, struct: Any) -> tuple[Any, ...]:
    if struct is None:
        return (None,) * len(features.paths)
    return features.leaves_like(struct, "padding_struct")


def at_least(least: int, value: Any, name: str) -> int:
    """The int that an argument is.

    Raises:
        TypeError: It is none.
        ValueError: It is too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r}.") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}.")
    return number


def _children(tree_: Any) -> list[tuple[Any, Any]]:
    """The steps from a container to what it holds."""
    if isinstance(tree_, Mapping):
        return list(tree_.items())
    if isinstance(tree_, (list, tuple)):
        return list(enumerate(tree_))
    raise TypeError(
        "length_struct must be made of dicts, lists, tuples and ints, got"
        f" {type(tree_).__name__}."
    )


def _beside(numbers: Any, struct: Any) -> Iterator[tuple[int, Any]]:
    """Each number with what a tree of the same containers has in its place.

    Raises:
        LookupError: It has other containers.
    """
    if isinstance(numbers, int):
        yield numbers, struct
        return
    kind = Mapping if isinstance(numbers, Mapping) else (list, tuple)
    if not isinstance(struct, kind) or len(struct) != len(numbers):
        raise LookupError
    for step, child in _children(numbers):
        yield from _beside(child, struct[step])


def _places(
    numbers: Any, path: Path, words: tuple[str, ...], rules: Rules
) -> Iterator[tuple[int, tuple[Path, tuple[str, ...]]]]:
    """Each number with the keys that lead to it, and what Grain calls these."""
    if isinstance(numbers, int):
        yield numbers, (path, words)
        return
    for step, child in _children(numbers):
        if rules == "plain":
            word = repr(step)
        elif isinstance(numbers, Mapping):
            word = f"DictKey(key={step!r})"
        elif hasattr(numbers, "_fields"):
            word = f"GetAttrKey(name={numbers._fields[step]!r})"
        else:
            word = f"SequenceKey(idx={step})"
        yield from _places(child, (*path, step), (*words, word), rules)
