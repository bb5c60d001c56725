"""Reads elements of a MapDataset a block at a time."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from gristmill._base.types import Indices, T
from gristmill._dataset.model.error_notes import is_noted, note, note_element, record_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import check_parents
from gristmill._hot import cancellation, steps
from gristmill._hot.draw import OpDraws

# A step for `steps.apply`: its kind, its function, the function that is called with
# (exception, index) if it fails, and the draws of a random map.
StepCall: TypeAlias = tuple[
    int, Callable[..., Any], Callable[[Exception, int], None], OpDraws | None
]


# Returns a dataset's elements at indices, as `block_of` does.
ReadBlock: TypeAlias = Callable[[Indices], list[Any]]


class BlockMapDataset(MapDataset[T]):
    """A dataset that computes elements in blocks. One element is a block of one.

    A subclass implements `_block`, and has a `_length` or its own ``__len__``.
    """

    _length: int
    # Whether `_block` takes a list to which it appends elements as they are computed.
    _APPENDS_TO_OUT: ClassVar[bool] = False

    def __init__(
        self, parents: MapDataset[Any] | Sequence[MapDataset[Any]] = ()
    ) -> None:
        super().__init__(parents)
        check_parents(self, self._parents, MapDataset)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        try:
            number = checked_index(index)
        except TypeError:
            # Reject tuples: ds[1, 2] may mean something else.
            if is_indices(index) and not isinstance(index, tuple):
                return self.slice(index)
            raise
        try:
            indices = np.array([number], np.int64)
        except OverflowError:
            indices = np.array([number], np.object_)
        return self._block(indices)[0]

    def _getitems(self, indices: Sequence[int]) -> Sequence[T | None]:
        return self._block(as_indices([checked_index(index) for index in indices]))

    def _block(self, indices: Indices) -> list[Any]:
        """Return the elements at `indices`, of shape (n,)."""
        raise NotImplementedError

    @property
    def _ancestor(self) -> MapDataset[Any] | None:
        """The dataset that has an element for each of this one's; see `ancestor_of`."""
        return None

    def _to_ancestor_indices(self, indices: Indices) -> Indices:
        """Convert indices, of shape (n,), to those of `_ancestor`."""
        return indices


class StepMapDataset(BlockMapDataset[T]):
    """A dataset with the indices and the length of its parent.

    A subclass implements `_call_of_each`, or `_step` for a whole block.  A run of such
    datasets reads a block of the dataset before it once, and applies all of its steps.
    This does not recurse, so a run may be longer than the stack allows.
    """

    _APPENDS_TO_OUT = True

    def __len__(self) -> int:
        return len(self._parent)

    @property
    def _ancestor(self) -> MapDataset[Any]:
        parent: MapDataset[Any] = self._parent
        return parent

    def _record(self, index: int) -> int | None:
        return record_of(self._parent, index)

    def _note_failure(self, error: BaseException, index: int) -> None:
        note_element(error, self, self, index)

    def _call_of_each(self) -> StepCall | None:
        """Return the step for one element; None for a class with its own `_step`."""
        return None

    def _step(self, elements: list[Any], indices: Indices) -> list[Any]:
        """Return the elements at `indices`, given the parent's."""
        raise NotImplementedError

    @functools.cached_property
    def _plan(self) -> tuple[ReadBlock, list[StepMapDataset[Any]]]:
        """The reader of the dataset before the run, and the run's other steps."""
        run: list[StepMapDataset[Any]] = []
        node = self._parent
        while isinstance(node, StepMapDataset) and is_built_in(type(node)):
            run.append(node)
            node = node._parent
        return reader_of(node), run[::-1]

    def _block(self, indices: Indices, out: list[Any] | None = None) -> list[Any]:
        read, run = self._plan
        elements = read(indices)
        calls: list[StepCall] = []
        for step in (*run, self):
            call = step._call_of_each()
            if call is not None:
                calls.append(call)
                continue
            if calls:
                elements = steps.apply(calls, elements, indices)
                calls = []
            elements = step._step(elements, indices)
        return steps.apply(calls, elements, indices, out) if calls else elements


def checked_index(index: Any) -> int:
    """Return an index as an int.

    Raises:
        TypeError: It is not an int.
    """
    try:
        return operator.index(index)
    except TypeError as error:
        raise TypeError(
            f"An index of a MapDataset must be an int or a slice, got {index!r}."
        ) from error


def is_indices(value: object) -> bool:
    """Return whether a value may be several indices of a dataset."""
    if isinstance(value, (str, bytes)):
        return False
    return isinstance(value, (Sequence, np.ndarray, MapDataset))


def as_indices(indices: Sequence[int]) -> Indices:
    """Return indices, shape (n,), as Python's integers if 64 bits do not hold one."""
    try:
        return np.array(indices, np.int64)
    except OverflowError:
        return np.array(indices, np.object_)


def indices_from(first: int, count: int) -> Indices:
    """Return first, first + 1, ..., shape (count,)."""
    if first >= -(2**63) and first + count < 2**63:
        return np.arange(first, first + count, dtype=np.int64)
    return np.array(range(first, first + count), np.object_)


def epochs_and_offsets(indices: Indices, length: int) -> tuple[Indices, Indices]:
    """Return the epoch of each index, and the offset in it, both of shape (n,).

    Raises:
        ZeroDivisionError: `length` is 0.
    """
    if not length:
        raise ZeroDivisionError("The dataset has no elements, so no index is valid.")
    if indices.dtype.hasobject:
        return indices // length, indices % length
    return np.divmod(indices, length)


def block_of(
    dataset: MapDataset[Any], indices: Indices, out: list[Any] | None = None
) -> list[Any]:
    """Return the elements of any dataset at `indices`, None for those that are absent.

    They are appended to `out` as they are computed, if the dataset computes them
    singly.

    Raises:
        StopIteration: A source or a user's dataset has ended.
    """
    method = _element_method(type(dataset))
    if method == "_block":
        block: Any = dataset
        appends = out is not None and block._APPENDS_TO_OUT
        elements: list[Any]
        elements = block._block(indices, out) if appends else block._block(indices)
        return elements
    if method == "_getitems":
        index_list = indices.tolist()
        try:
            elements = list(dataset._getitems(index_list))
        except StopIteration:
            raise
        except Exception as error:
            if not is_noted(error):
                shown = ", ".join(map(str, index_list[:5])) + ", ..." * (
                    len(index_list) > 5
                )
                note(error, dataset, f"read one of the elements {shown}")
            raise
        if len(elements) != len(indices):
            raise ValueError(
                f"{type(dataset).__name__}._getitems returned {len(elements)} elements"
                f" for {len(indices)} indices"
            )
        return elements
    results = []
    for index in indices.tolist():
        cancellation.check()
        try:
            results.append(dataset[index])
        except StopIteration:
            raise
        except Exception as error:
            if not is_noted(error):
                note_element(error, dataset, dataset, index, "read")
            raise
    return results


def ancestor_of(dataset: Any) -> Any:
    """Return the dataset that has an element for each of a dataset's, or None.

    Its elements are the same, or a step makes each of the dataset's from one of them.
    The nodes in between only change indices: `_to_ancestor_indices` converts them.
    """
    is_ours = isinstance(dataset, BlockMapDataset) and is_built_in(type(dataset))
    return dataset._ancestor if is_ours else None


def origin_of(dataset: Any) -> Any:
    """Return the farthest dataset that `ancestor_of` leads to."""
    while (ancestor := ancestor_of(dataset)) is not None:
        dataset = ancestor
    return dataset


def to_origin_indices(dataset: Any, indices: Indices) -> Indices:
    """Convert indices of a dataset, of shape (n,), to those of its origin."""
    while (ancestor := ancestor_of(dataset)) is not None:
        indices = dataset._to_ancestor_indices(indices)
        dataset = ancestor
    return indices


def reader_of(dataset: MapDataset[Any]) -> ReadBlock:
    """Return `block_of` of a dataset, without its choice of a method for each block."""
    if is_built_in(type(dataset)):
        block: Any = dataset
        read: ReadBlock = block._block
        return read
    return functools.partial(block_of, dataset)


def is_built_in(kind: type) -> bool:
    """Return whether a class of datasets is read by `_block`, not a user's method."""
    return _element_method(kind) == "_block"


@functools.cache
def _element_method(kind: type) -> str:
    """Return the name of the method to call, from the most derived class."""
    for cls in kind.__mro__:
        for name in ("_block", "_getitems", "__getitem__"):
            if name in cls.__dict__ and cls is not MapDataset:
                return name
    return "__getitem__"
