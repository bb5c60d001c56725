"""Runs steps over blocks of records if some steps take several elements at a time.

The records go one by one through the steps before a `BlockCall`, then together through
the `BlockCall`, and so on.  The result equals that of running all steps over one record
after another.  It has the form of the result of `hot_run.run_block`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill._base.types import Int64Array
from gristmill._engine.program import StepSpec
from gristmill._engine.reading import ReadResult
from gristmill._engine.stream import record_word
from gristmill._engine.stream_keys import RecordKeys, SamplerDraws, first_records
from gristmill._hot import run as hot_run
from gristmill._hot import steps as step_kinds
from gristmill._hot.block_call import BlockCall, BlockLengthError

# The elements, the places of their records in the block (None if no record was
# dropped), the number of records consumed, and the exception of the last of these.
BlockResult = tuple[list[Any], list[int] | None, int, Exception | None]
# The keys of records, their elements as read (None if `run_block` read them), and the
# result of the steps.  These are plain tuples, because each output makes some, and a
# named tuple takes ten times as long to make and to unpack.  Unpack them; do not index.
ComputedBlock = tuple[RecordKeys, ReadResult | None, BlockResult]


class BlockSteps:
    """Steps with at least one `BlockCall`."""

    def __init__(
        self, steps: tuple[StepSpec, ...], draws: Any, record_address: int
    ) -> None:
        self._steps = steps
        self._draws = draws
        self._record_address = record_address
        self._current_record = record_word(record_address)
        # The steps between the calls, some of them empty; and the call after each part
        # except for the last, with its name.
        self._parts: list[tuple[StepSpec, ...]] = []
        self._calls: list[tuple[BlockCall, str]] = []
        first = 0
        for number, (_, call, name) in enumerate(steps):
            if isinstance(call, BlockCall):
                self._parts.append(steps[first:number])
                self._calls.append((call, name))
                first = number + 1
        self._parts.append(steps[first:])
        self._size = max(call.size for call, _ in self._calls)
        # True if steps of several parts draw from a record's generator.
        self._shares_generators = sum(map(_has_random_step, self._parts)) > 1

    def round_up(self, count: int) -> int:
        """Return `count` rounded up to a multiple of the largest block size."""
        return -(-count // self._size) * self._size

    def run(
        self,
        elements: list[Any],
        keys: Int64Array,
        indices: Int64Array,
        rewind: Callable[[], list[Any]],
    ) -> BlockResult:
        """Return the result of the steps for the n records of a block.

        The keys and indices have the shape (n,); the indices select random draws.

        If a call fails, the records go through the steps one by one, to find the bad
        one.  `rewind` returns the original elements, and makes new generators.
        """
        try:
            return self._run_together(elements, keys, indices)
        except _CallFailed as call_failed:
            failed = call_failed
        result = hot_run.run_block(
            None,
            keys,
            indices,
            self._steps,
            self._draws,
            self._record_address,
            rewind(),
        )
        _, _, _, error = result
        if error is None and isinstance(failed.error, BlockLengthError):
            note = f"while {failed.name} processed {failed.count} elements"
            failed.error.add_note(note)
            # No single record is bad, so the error counts for the first one.
            return [], None, 1, failed.error
        return result

    def _run_together(
        self, elements: list[Any], keys: Int64Array, indices: Int64Array
    ) -> BlockResult:
        # If a record fails, later parts get only the records before it.
        consumed, error = len(elements), None
        draws = self._draws_for(indices)
        places = np.arange(consumed)
        for number, part in enumerate(self._parts):
            if part:
                elements, kept_places, part_consumed, failure = hot_run.run_block(
                    None, keys, indices, part, draws, self._record_address, elements
                )
                if failure is not None:
                    consumed, error = int(places[part_consumed - 1]) + 1, failure
                passed = slice(len(elements)) if kept_places is None else kept_places
                keys, indices, places = keys[passed], indices[passed], places[passed]
            if number < len(self._calls) and elements:
                elements = self._call_block(*self._calls[number], elements, keys)
        # `run_block` returns no places, either, if no record was dropped.
        all_passed = len(places) == consumed - (error is not None)
        return elements, None if all_passed else places.tolist(), consumed, error

    def _call_block(
        self, call: BlockCall, name: str, elements: list[Any], keys: Int64Array
    ) -> list[Any]:
        self._current_record.value = int(keys[0])
        stage_start = hot_run.begin()
        try:
            results = call.call_all(elements)
            hot_run.end(name, stage_start)
            return results
        except Exception as error:
            raise _CallFailed(error, name, len(elements)) from None

    def _draws_for(self, indices: Int64Array) -> Any:
        """Return generators for a block's records; all steps of a record share one.

        `Draws` would reset its only generator between the parts of the steps.
        """
        draws = self._draws
        if not self._shares_generators or isinstance(draws, SamplerDraws | None):
            return draws
        return SamplerDraws((index, draws.at(index)) for index in indices.tolist())


class _CallFailed(Exception):
    """A call with several elements failed."""

    def __init__(self, error: Exception, name: str, count: int) -> None:
        super().__init__()
        self.error, self.name, self.count = error, name, count


def block_steps(
    steps: tuple[StepSpec, ...], draws: Any, record_address: int
) -> BlockSteps | None:
    """Return the object that runs steps over blocks; None if no step takes blocks."""
    if any(isinstance(call, BlockCall) for _, call, _ in steps):
        return BlockSteps(steps, draws, record_address)
    return None


def split_block(
    block: ComputedBlock, count: int
) -> tuple[ComputedBlock, ComputedBlock | None]:
    """Return the part of a block that has the first `count` elements, and the rest.

    The rest is None if the block has fewer elements, or as many and no record after
    the last of them.  REQUIRES: count >= 1 if places are given.
    """
    records, read, (elements, places, consumed, error) = block
    if len(elements) < count:
        return block, None
    end = count if places is None else places[count - 1] + 1
    if end == consumed and error is None:
        return block, None
    first_places = places[:count] if places else None
    rest_places = None if places is None else [place - end for place in places[count:]]
    rest_read = None if read is None else ReadResult(read.elements[end:], read.failure)
    first_result: BlockResult = elements[:count], first_places, end, None
    rest_result: BlockResult = elements[count:], rest_places, consumed - end, error
    first = first_records(records, end), read, first_result
    return first, (records_after(records, end), rest_read, rest_result)


def can_reuse(elements: list[Any], block_runner: BlockSteps | None) -> bool:
    """Return whether steps can run over elements again after a record of theirs failed.

    Without a block runner, the steps did not get these elements.  With one, they may
    have got them, so only bytes are certainly unchanged.  They may also have drawn from
    generators; if the sampler makes these, they are not made again.

    Args:
        elements: The elements after the failed record, or all of its block.
        block_runner: The object that ran the steps; None if `run_block` did.
    """
    if block_runner is None:
        return bool(elements)
    if isinstance(block_runner._draws, SamplerDraws):
        return False
    return bool(elements) and all(type(element) is bytes for element in elements)


def records_after(records: RecordKeys, count: int) -> RecordKeys:
    """Return some records without the first `count`."""
    keys, indices, names = records
    return keys[count:], indices[count:], None if names is None else names[count:]


def run_steps(
    steps: tuple[StepSpec, ...],
    draws: Any,
    record_address: int,
    key: Int64Array,
    index: Int64Array,
    element: list[Any],
) -> list[Any]:
    """Return the result of some steps for one element, in a list.

    The list is empty if a step drops the element.

    Raises:
        Exception: A step raised it; it has a note.
    """
    results, _, _, error = hot_run.run_block(
        None, key, index, steps, draws, record_address, element
    )
    if error is not None:
        raise error
    return results


def _has_random_step(steps: tuple[StepSpec, ...]) -> bool:
    return any(opcode == step_kinds.RANDOM_MAP for opcode, _, _ in steps)
