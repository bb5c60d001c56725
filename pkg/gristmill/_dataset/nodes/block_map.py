"""Datasets that call a function with several elements at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from gristmill import transforms
from gristmill._base.types import Indices, T
from gristmill._dataset.model.blocks import StepMapDataset
from gristmill._dataset.model.error_notes import (
    last_element_getter,
    note,
    note_earlier_element,
)
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    CountingIterator,
    DatasetIterator,
    get_next_index,
    set_next_index,
)
from gristmill._dataset.model.node import builds
from gristmill._dataset.model.states import replay
from gristmill._dataset.nodes.map import MapBase
from gristmill._hot import cancellation, iterators
from gristmill._hot.block_call import BlockCall, BlockLengthError


class BlockMapBase(MapBase):
    """A block-map dataset of either kind."""

    _TRANSFORM_TYPE = transforms.BlockMap

    def __init__(
        self, parent: Any, transform: Any, block_size: int | None = None
    ) -> None:
        super().__init__(parent, transform)
        if block_size is None:
            has_size = isinstance(transform, transforms.BlockMap)
            block_size = (transform if has_size else transforms.BlockMap).block_size
        # Replaces the plain function that `MapBase` has stored.
        self._call: BlockCall = BlockCall(self._call, block_size)
        self._preferred_block = self._block_size = self._call.size

    def _arguments_text(self) -> str:
        return f"(transform={self._transform_name}, block_size={self._block_size})"


@builds("MapDataset.block_map")
class BlockMapMapDataset(BlockMapBase, StepMapDataset[T]):
    """The results of a function that is called with several elements at once."""

    def _step(self, elements: list[Any], indices: Indices) -> list[Any]:
        try:
            return _call_with_present(elements, self._call.call_all)
        except Exception as error:
            if len(elements) == 1:
                self._note_failure(error, int(indices[0]))
                raise
            failure = error
        # The function may have changed its arguments: make each element again, alone.
        singly = [self._block(indices[i : i + 1])[0] for i in range(len(indices))]
        # The function works singly but is wrong for blocks: do not hide that.
        if isinstance(failure, BlockLengthError):
            note(failure, self, f"processed elements {indices[0]}, ...")
            raise failure
        return singly


@builds("IterDataset.block_map")
class BlockMapIterDataset(BlockMapBase, IterDataset[T]):
    """The results of a function that is called with several elements at once."""

    _KEEPS_LENGTH = True

    def __iter__(self) -> DatasetIterator[T]:
        return BlockMapDatasetIterator(self)


class BlockMapDatasetIterator(CountingIterator[T]):
    """Iterates over the results of a function of several elements.

    The state is the parent's state before the current block, and the number of its
    elements that `next` has returned or has raised an exception for.  Restoring reads
    these again.
    """

    _COUNTER_NAME = "given_of_block"

    def __init__(self, node: BlockMapBase) -> None:
        super().__init__(node)
        self._get_last_element = last_element_getter(self._parent)
        # The parent's state before the current block.
        self._state_before_block = self._parent.get_state()
        self._discard_block()

    def _discard_block(self) -> None:
        """Discard the current block."""
        # Results that are ready, the last one first, and the exception after them.
        self._results: list[Any] = []
        self._failure: Exception | None = None
        # Elements not yet passed to the function, and the place of each in its source.
        self._inputs: list[Any] = []
        self._input_elements: list[Any] = []
        # The exception that the parent raised instead of another element.
        self._parent_error: Exception | None = None

    def __next__(self) -> T:
        while not self._results:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                self.counter += 1
                raise failure
            if self._inputs:
                self._compute()
            elif self._parent_error is not None:
                self._raise_parent_error(self._parent_error)
            else:
                self._read_block()
        self.counter += 1
        element: T = self._results.pop()
        return element

    def _read_block(self) -> None:
        """Take a block of the parent's elements, up to its end or a failure."""
        state_before = self._parent.get_state()
        try:
            for _ in range(self._node._block_size):
                cancellation.check()
                element = next(self._parent)
                if not self._inputs:
                    self._state_before_block, self.counter = state_before, 0
                self._input_elements.append(self._get_last_element())
                self._inputs.append(element)
        except Exception as error:
            self._parent_error = error

    def _raise_parent_error(self, error: Exception) -> None:
        """Raise the parent's exception. Only StopIteration is raised repeatedly."""
        if isinstance(error, StopIteration):
            raise StopIteration
        self._parent_error = None
        self._state_before_block, self.counter = self._parent.get_state(), 0
        raise error

    def _compute(self) -> None:
        """Compute results for the waiting elements, up to an element that fails."""
        elements, call = self._inputs, self._node._call
        failure: Exception | None = None
        try:
            results = _call_with_present(elements, call.call_all)
            used_count = len(elements)
        except Exception as error:
            failure = error
        if failure is not None:
            elements = self._read_inputs_again()
            results, used_count = self._compute_singly(elements, failure)
        self._results = results[::-1]
        self._inputs = elements[used_count:]
        self._input_elements = self._input_elements[used_count:]

    def _read_inputs_again(self) -> list[Any]:
        """Read the waiting elements again, in case the function changed them."""
        self._parent.set_state(self._state_before_block)
        count = self.counter + len(self._inputs)
        elements = replay(self._parent, count)[self.counter :]
        if self._parent_error is not None:
            # Move past the element that failed, as when the block was first read.
            with contextlib.suppress(Exception):
                next(self._parent)
        # An iterator of the user may not return the same elements again.
        return elements if len(elements) == len(self._inputs) else self._inputs

    def _compute_singly(
        self, elements: list[Any], failure: Exception
    ) -> tuple[list[Any], int]:
        """Return results up to an element that fails, and the number of elements used.

        The number includes the element that fails; `_failure` has its exception.
        """
        results: list[Any] = []
        for element, element_read in zip(elements, self._input_elements, strict=True):
            try:
                results.append(None if element is None else self._node._call(element))
            except Exception as error:
                note_earlier_element(error, self, element_read)
                self._failure = error
                return results, len(results) + 1
        if isinstance(failure, BlockLengthError):
            note(failure, self, f"processed {len(elements)} elements")
            self._failure = failure
            # No result is returned for the first element; its `next` raises the error.
            # The others are computed again.
            return [], 1
        return results, len(results)

    def _parent_state(self) -> Any:
        return self._state_before_block

    def _go_to(self, state: Any) -> None:
        super()._go_to(state)
        self._state_before_block = state["parent"]
        self._discard_block()
        iterators.take(self._parent, self.counter)

    def _release(self) -> None:
        self._discard_block()

    def _get_next_index(self) -> int:
        if self._results or self._inputs or self._failure is not None:
            # Only the parent has the index, and it has read ahead: move it back.
            self.set_state(self.get_state())
        return get_next_index(self._parent)

    def _set_next_index(self, index: int) -> None:
        set_next_index(self._parent, index)
        self._discard_block()
        self._state_before_block, self.counter = self._parent.get_state(), 0


def _call_with_present(
    elements: list[Any], call: Callable[[list[Any]], list[Any]]
) -> list[Any]:
    """Return the results of `call`. Absent elements are kept and not passed to it."""
    present = [element for element in elements if element is not None]
    if len(present) == len(elements):
        return call(elements)
    results = iter(call(present))
    return [None if element is None else next(results) for element in elements]
