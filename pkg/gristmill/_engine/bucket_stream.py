"""Computes a loader's chain that batches elements of similar lengths."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.bucket_batches import BucketBatches
from gristmill._engine.native_stream import NativeStream
from gristmill._engine.program import Program
from gristmill._engine.reading import read_each
from gristmill._engine.stream import Position
from gristmill._hot.error_location import as_failure
from gristmill.errors import StateMismatch
from gristmill.transforms._bucket import BucketBatch

OTHER_PIPELINE = "The state belongs to another pipeline, or the data has changed."


@dataclasses.dataclass(frozen=True, slots=True)
class WaitingElement:
    """An element that waits for its batch.

    Attributes:
        position: The number of its record in the stream.
        key: The key of its record, shape (1,).
        element: The element.
    """

    position: int
    key: Int64Array
    element: Any


class BucketStream(NativeStream):
    """Computes a chain whose first batch is a `BucketBatch`.  See `Stream`.

    Its position is the number of records consumed, then the positions of the waiting
    elements, ascending.  After a seek, the records of these are read again, one by one.
    """

    def __init__(
        self, program: Program, stream: int, record_address: int, look_ahead: bool
    ) -> None:
        super().__init__(program, stream, record_address, look_ahead)
        spec = program.batch_stages[0].batch
        assert isinstance(spec, BucketBatch)
        self._spec = spec
        self._buckets = BucketBatches(spec)
        # The elements that wait, by bucket.
        self._waiting: list[list[WaitingElement]] = [[] for _ in self._buckets.sizes]
        # The positions of all elements that wait, ascending.
        self._waiting_positions: dict[int, None] = {}
        # The bucket of each element that was added for the output being computed, to
        # remove these again if the call is interrupted.
        self._added: list[int] = []
        # The positions of waiting elements that were not read again yet.
        self._unread_positions: Position = ()

    def seek(self, position: Position) -> None:
        super().seek(position[:1])
        self.position = position
        self._unread_positions = position[1:]
        self._waiting = [[] for _ in self._buckets.sizes]
        self._waiting_positions = {}

    def next(self, alloc: Alloc | None = None) -> Any:
        if self._unread_positions:
            self._reread_waiting()
        self._added.clear()
        try:
            output = super().next(alloc)
        except Exception:
            self.position = self._position_now()
            raise
        except BaseException:
            for bucket in reversed(self._added):
                del self._waiting_positions[self._waiting[bucket].pop().position]
            raise
        self.position = self._position_now()
        return output

    def _position_now(self) -> Position:
        return self._consumed, *self._waiting_positions

    def _batch(self, stage: int, alloc: Alloc | None) -> Any:
        if stage:
            return super()._batch(stage, alloc)
        while (one := self._next_element()) is not None:
            bucket = self._bucket_of(one)
            self._waiting[bucket].append(one)
            self._waiting_positions[one.position] = None
            self._added.append(bucket)
            if len(self._waiting[bucket]) == self._buckets.sizes[bucket]:
                return self._batch_of(bucket)
        if self._consumed < self._length:
            raise StopIteration  # There are many bad records, and no element yet.
        for bucket, waiting in enumerate(self._waiting):
            if waiting and not self._spec.drop_remainder:
                return self._batch_of(bucket)
        raise StopIteration

    def _next_element(self) -> WaitingElement | None:
        """Return the next element; None at the end, or after many bad records.

        Its key is kept in the element, and not in the keys of this output.
        """
        parts = len(self._key_parts)
        elements = self._first_stage_elements(1)
        if not elements:
            return None
        return WaitingElement(self._consumed - 1, self._key_of(parts), elements[0])

    def _key_of(self, parts: int) -> Int64Array:
        """Remove and join the parts of the output's keys after the first `parts`."""
        key = np.concatenate(self._key_parts[parts:])
        del self._key_parts[parts:]
        return key

    def _bucket_of(self, one: WaitingElement) -> int:
        try:
            return self._buckets.bucket_of(one.element)
        except Exception as error:
            raise self._with_note(error, f"measured record {one.key[0]}") from None

    def _batch_of(self, bucket: int) -> Any:
        """Return the batch of all waiting elements of a bucket."""
        waiting = self._waiting[bucket]
        self._key_parts += [one.key for one in waiting]
        try:
            batch = self._buckets.batch([one.element for one in waiting], bucket)
        except Exception as error:
            self._remove(bucket)
            text = f"made a batch of {len(waiting)} elements"
            raise self._with_note(error, text) from None
        self._remove(bucket)
        return batch

    def _remove(self, bucket: int) -> None:
        for one in self._waiting[bucket]:
            del self._waiting_positions[one.position]
        self._waiting[bucket] = []

    def _with_note(self, error: Exception, doing: str) -> Exception:
        failure = as_failure(error, type(self._spec).__name__)
        failure.add_note(f"while {type(self._spec).__name__} {doing}")
        return failure

    def _reread_waiting(self) -> None:
        """Read the waiting elements of the position again."""
        consumed, sizes = self._consumed, self._buckets.sizes
        waiting: list[list[WaitingElement]] = [[] for _ in sizes]
        # Bad records on the way were counted with earlier outputs.
        self.record_errors.lift_limit()
        try:
            for position in self._unread_positions:
                one = self._element_at(position)
                bucket = self._bucket_of(one)
                waiting[bucket].append(one)
                if len(waiting[bucket]) >= sizes[bucket]:
                    raise StateMismatch(
                        f"A state must have fewer than {sizes[bucket]} elements that"
                        f" wait in bucket {bucket}, its batch size, got"
                        f" {len(waiting[bucket])}. {OTHER_PIPELINE}"
                    )
        finally:
            self._consumed = consumed
            self.record_errors.begin()
        self._waiting_positions = dict.fromkeys(self._unread_positions)
        self._waiting, self._unread_positions = waiting, ()

    def _element_at(self, position: int) -> WaitingElement:
        """Return the element of one record; move to the position after it.

        Raises:
            StateMismatch: The steps drop the record.
        """
        self._consumed = position + 1
        parts = len(self._key_parts)
        records = self._keys.records(position, 1)
        keys, _, names = records
        requested = keys.tolist() if names is None else names
        read = read_each(self._program.source, requested)
        elements, _, _, error = self._run(records, read, None)
        self._key_parts.append(keys[: len(elements)])
        if error is not None and not isinstance(error, StopIteration):
            elements = [*self._replace_record(error, records, 0)]
        if len(elements) != 1:
            raise StateMismatch(
                f"Record {position} of a stream must give one element, got"
                f" {len(elements)}: the state has an element of it that waits for its"
                f" batch. {OTHER_PIPELINE}"
            )
        return WaitingElement(position, self._key_of(parts), elements[0])
