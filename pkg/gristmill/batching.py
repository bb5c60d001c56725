"""Makes batches of elements: leaves of shape S become one leaf of shape (B, *S).

The definition of leaves, the dtypes that result from leaves of different types, and the
error texts are Grain's.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import importlib.util
import pprint
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.deferred import Deferred
from gristmill._base.lazy_names import public_names
from gristmill._base.types import Alloc, Rules
from gristmill._hot import containers, tree
from gristmill._hot.exceptions import StructureMismatchError
from gristmill.errors import ShapeMismatch

__all__ = ["make_batch", "padded_batch"]

_ADVICE = (
    "Make them equal in a Map before the Batch, or pass batch_fn= to Batch to"
    " combine them another way."
)

# Python's number types, and the dtypes that NumPy gives them.
_SCALARS = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
}

# Batches larger than this have left the processor's caches when they are read.  Several
# batches made by `alloc` wait for another process, so their limit is smaller.
_OWN_CACHED_BYTES = 16 << 20
_ALLOC_CACHED_BYTES = 4 << 20

# Kinds of dtype of NumPy's numbers and bools.
_NUMBER_KINDS = "biufc"


@functools.cache
def tree_rules() -> Rules:
    """Return "jax" if jax can be imported, else "plain".  Imports nothing."""
    return "plain" if importlib.util.find_spec("jax") is None else "jax"


def make_batch(
    elements: Sequence[Any],
    *,
    rules: Rules | None = None,
    alloc: Alloc | None = None,
    stack_single: bool = False,
    threads: int = 1,
) -> Any:
    """Stack the leaves of elements.

    Args:
        elements: ``B`` elements of one structure, at least 1.
        rules: The definition of an element's containers, "jax" or "plain".  None for
            "jax" if jax is installed, else "plain".
        alloc: Makes the arrays of the batch, except for those of dtype object.  None
            leaves all to NumPy.
        stack_single: Whether to stack a single element, too, which converts it to the
            machine's byte order, like the old `BatchOperation`.  Otherwise it only gets
            a first axis.
        threads: The most threads that compute deferred leaves.

    Returns:
        An element with leaves of shape ``(B, *S)``, if those of the elements have shape
        ``S``.

    Raises:
        ShapeMismatch: Two elements differ in structure or shape.
        ValueError: `elements` is empty.

    Example:
        >>> make_batch([{"x": np.float32(1)}, {"x": np.float32(2)}])
        {'x': array([1., 2.], dtype=float32)}
    """
    if not elements:
        raise ValueError("Cannot batch 0 values. A batch needs at least one element.")
    values = elements if type(elements) is list else list(elements)
    rules = rules or tree_rules()
    stack = _stack_one if len(values) == 1 and not stack_single else _stack
    leaves = []
    try:
        columns, treedef = tree.batch_leaves(values, rules)
        for column in columns:
            leaves.append(stack(column, alloc, threads))
        return tree.unflatten(treedef, leaves)
    except StructureMismatchError as error:
        raise _mismatch(values, rules, str(error)) from None
    except ValueError as error:
        raise _mismatch(values, rules, _shape_mismatch(values) or str(error)) from error


def padded_batch(
    elements: Sequence[Any], *, length: int | None = None, padding_values: Any = None
) -> Any:
    """Stack the leaves of elements, padded at the end to one shape.

    Args:
        elements: ``B`` elements of one structure, at least 1.
        length: The length to which the first axis of each leaf is padded.  None pads it
            to the longest of the batch, like all other axes.
        padding_values: The values to pad with: one for all leaves, or an element with a
            value for each leaf; None for zeros and empty strings.

    Returns:
        An element with leaves of shape ``(B, *S)``.  ``S`` has the greatest extent of
        each axis, and the dtype is that of `make_batch`.

    Raises:
        ShapeMismatch: Two elements differ in structure, or two leaves in their number
            of axes.
        ValueError: `elements` is empty, a leaf is longer than `length`, or its dtype
            has no such padding value.

    Example:
        >>> padded_batch([np.array([1, 2, 3]), np.array([4])], padding_values=-1)
        array([[ 1,  2,  3],
               [ 4, -1, -1]])
    """
    if not elements:
        raise ValueError("Cannot batch 0 values. A batch needs at least one element.")
    values = list(elements)
    rules = tree_rules()
    try:
        columns, treedef = tree.batch_leaves(values, rules)
    except StructureMismatchError as error:
        raise _mismatch(values, rules, str(error)) from None
    leaf_padding = _padding_values(padding_values, treedef, rules)
    batches = []
    for column, padding_value in zip(columns, leaf_padding, strict=True):
        rows = [np.asarray(leaf) for leaf in column]
        if len({row.ndim for row in rows}) > 1:
            reason = "Leaves to pad have different numbers of axes"
            raise _mismatch(values, rules, _shape_mismatch(values) or reason)
        batches.append(_pad_and_stack(rows, length, padding_value))
    return tree.unflatten(treedef, batches)


def _padding_values(values: Any, treedef: tree.TreeDef, rules: Rules) -> list[Any]:
    """Return the padding value of each leaf of a structure."""
    leaves, structure = tree.flatten(values, rules)
    if values is None or structure == tree.LEAF_DEF:
        return [values] * treedef.num_leaves
    if structure != treedef:
        expected = tree.unflatten(treedef, ["value"] * treedef.num_leaves)
        raise ValueError(
            "padding_values must be one value, or have the structure of an element,"
            f" {expected}, got {values}."
        )
    return leaves


def _pad_and_stack(
    rows: list[npt.NDArray[Any]], length: int | None, padding: Any
) -> npt.NDArray[Any]:
    shape = [max(extents) for extents in zip(*(row.shape for row in rows), strict=True)]
    if length is not None and shape:
        if shape[0] > length:
            raise ValueError(
                f"A leaf to pad must have a length of at most {length}, got {shape[0]}."
                " Raise the length, or pass your own batch_fn if leaves have axes that"
                " must not be padded."
            )
        shape[0] = length
    if all(row.shape == tuple(shape) for row in rows):
        return _stack(rows) if len(rows) > 1 else _stack_one(rows)
    dtype = np.result_type(*(row.dtype for row in rows))
    batch = np.zeros((len(rows), *shape), dtype)
    if padding is not None:
        batch[...] = _as_dtype(padding, dtype)
    for i, row in enumerate(rows):
        batch[i][tuple(slice(extent) for extent in row.shape)] = row
    return batch


def _as_dtype(padding: Any, dtype: np.dtype[Any]) -> Any:
    """Return a padding value as a dtype; raise ValueError if the value would change."""
    converted = np.asarray(padding).astype(dtype)
    if dtype.kind in "biu" and converted != padding:
        raise ValueError(
            f"padding_values must fit the dtype of the leaf, {dtype}, got {padding!r}."
        )
    return converted


def _stack(
    column: list[Any], alloc: Alloc | None = None, threads: int = 1
) -> npt.NDArray[Any]:
    """Return ``np.stack(column)``, of B leaves, made by `alloc` if given."""
    first = column[0]
    allocate = alloc or np.empty
    if type(first) is np.ndarray and _is_plain(first.dtype):
        out = allocate((len(column), *first.shape), first.dtype)
        cached_bytes = _OWN_CACHED_BYTES if alloc is None else _ALLOC_CACHED_BYTES
        if _core.stack(column, out, streaming=out.nbytes > cached_bytes) < 0:
            return out
    dtype = _SCALARS.get(type(first))
    if dtype is None:
        if isinstance(first, Deferred):
            return first.stack(column, alloc, threads)
        dtype = _number_dtype(first)
    if dtype is not None:
        out = allocate((len(column),), dtype)
        # NumPy stacks ints beyond int64, since it has more types.
        if _core.stack_scalars(column, out) < 0:
            return out
    return _copy_to_alloc(np.stack(column), alloc)


def _stack_one(
    column: list[Any], alloc: Alloc | None = None, threads: int = 1
) -> npt.NDArray[Any]:
    """Return a batch of one leaf, which does not share memory with the leaf."""
    if isinstance(column[0], Deferred):
        return column[0].stack(column, alloc, threads)
    row = np.asanyarray(column[0])
    if alloc is None or not _is_plain(row.dtype):
        return np.expand_dims(row, axis=0).copy()
    return _copy_to_alloc(np.expand_dims(row, axis=0), alloc)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Return whether stacking items of this dtype only copies their bytes.

    NumPy changes the byte order and the layout of others, and objects are references.
    """
    return dtype.isnative and not dtype.hasobject and dtype.names is None


def structures_differ(first: Any, second: Any) -> bool:
    """Return whether two elements differ in their containers, ignoring leaves."""
    rules = tree_rules()
    _, first_structure = tree.flatten(first, rules)
    _, second_structure = tree.flatten(second, rules)
    return bool(first_structure != second_structure)


def _number_dtype(leaf: Any) -> np.dtype[Any] | None:
    """Return the dtype of a NumPy number, or None for any other leaf."""
    if isinstance(leaf, np.generic) and leaf.dtype.kind in _NUMBER_KINDS:
        return leaf.dtype
    return None


def _copy_to_alloc(batch: npt.NDArray[Any], alloc: Alloc | None) -> npt.NDArray[Any]:
    if alloc is None or batch.dtype.hasobject:
        return batch
    out = alloc(batch.shape, batch.dtype)
    np.copyto(out, batch, casting="no")
    return out


def _mismatch(values: list[Any], rules: Rules, reason: str) -> ShapeMismatch:
    """Return an error with Grain's text, the elements that differ, and the remedy."""
    return ShapeMismatch(
        "Expected all input elements to have the same structure but got:\n"
        f"{pprint.pformat(spec_like(values, rules))}\n{reason}. {_ADVICE}"
    )


def _shape_mismatch(values: list[Any]) -> str | None:
    """Describe the first leaf whose shape differs from that in the first element."""
    for number in range(1, len(values)):
        difference = _shape_difference(values[0], values[number], "element")
        if difference is not None:
            path, shape, expected = difference
            return (
                f"{path}: element {number} of the batch has shape {shape}, but element"
                f" 0 has {expected}"
            )
    return None


def _shape_difference(
    expected: Any, value: Any, path: str
) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """Return the path and both shapes of the first leaf that differs in shape."""
    if isinstance(expected, collections.abc.Mapping):
        steps: Any = expected
    elif isinstance(expected, (list, tuple)):
        steps = range(len(expected))
    else:
        shapes = np.shape(value), np.shape(expected)
        return (path, *shapes) if shapes[0] != shapes[1] else None
    for step in steps:
        difference = _shape_difference(expected[step], value[step], f"{path}[{step!r}]")
        if difference is not None:
            return difference
    return None


def spec_like(value: Any, rules: Rules) -> Any:
    """Return the element with each leaf replaced by Grain's description of it."""
    if isinstance(value, (list, tuple)) and all(
        isinstance(item, type(value[0])) for item in value
    ):
        item = type(value[0]).__name__ if value else ""
        return f"{type(value).__name__}<{item}>{_shape_text(value)}"
    level = containers.take_apart(value, rules == "jax")
    if level is not None:
        kind, cls, aux, children = level
        items = [spec_like(child, rules) for child in children]
        return containers.assemble(kind, cls, aux, items)
    return f"{_type_text(value, rules)}{_shape_text(value)}"


def _type_text(leaf: Any, rules: Rules) -> str:
    if isinstance(leaf, np.ndarray):
        return str(leaf.dtype)
    name = type(leaf).__name__
    if dataclasses.is_dataclass(leaf):
        fields: Any = dataclasses.fields(leaf)
    else:
        fields = getattr(leaf, "__attrs_attrs__", None)  # Made by the package attrs.
    if fields is None:
        return name
    values = {field.name: getattr(leaf, field.name) for field in fields}
    return f"{name}\n{pprint.pformat(spec_like(values, rules))}"


def _shape_text(value: Any) -> str:
    try:
        return str(list(np.asarray(value).shape))
    except ValueError:
        return "[unknown shape]"


def __dir__() -> list[str]:
    return public_names(__all__)
