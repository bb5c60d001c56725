"""Computes a loader's chain that batches elements of similar lengths."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.bucket_batches import BucketBatches
from gristmill._engine.native_stream import NativeStream
from gristmill._engine.program import Program
from gristmill._engine.stream import Position
from gristmill._hot.place import as_failure
from gristmill.errors import StateMismatch
from gristmill.transforms._bucket import BucketBatch


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
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

    Its position is the number of records consumed, and the positions of the elements
    that wait, ascending.  Seeking reads the records of these again.
    """

    def __init__(
        self, program: Program, stream: int, at: int, look_ahead: bool
    ) -> None:
        super().__init__(program, stream, at, look_ahead)
        spec = program.levels[0].batch
        assert isinstance(spec, BucketBatch)
        self._spec = spec
        self._buckets = BucketBatches(spec)
        self._waiting: list[list[Waiting]] = [[] for _ in self._buckets.sizes]
        # The positions of elements that wait, which were not read again yet.
        self._unread: Position = ()

    def seek(self, position: Position) -> None:
        super().seek(position[:1])
        self.position = position
        self._unread = position[1:]
        self._waiting = [[] for _ in self._buckets.sizes]

    def next(self, alloc: Alloc | None = None) -> Any:
        if self._unread:
            self._read_again()
        before = [[*some] for some in self._waiting]
        try:
            output = super().next(alloc)
        except Exception:
            self.position = self._here()
            raise
        except BaseException:
            self._waiting = before
            raise
        self.position = self._here()
        return output

    def _here(self) -> Position:
        waiting = sorted(one.position for some in self._waiting for one in some)
        return self._consumed, *waiting

    def _open_batches(self, look_ahead: bool) -> None:
        return None

    def _batch(self, level: int, alloc: Alloc | None) -> Any:
        if level:
            return super()._batch(level, alloc)
        while (one := self._next_element()) is not None:
            bucket = self._bucket_of(one)
            self._waiting[bucket].append(one)
            if len(self._waiting[bucket]) == self._buckets.sizes[bucket]:
                return self._batch_of(bucket)
        if self._consumed < self._length:
            raise StopIteration  # It met many bad records and nothing else.
        for bucket, some in enumerate(self._waiting):
            if self._spec.drop_remainder:
                some.clear()
            if some:
                return self._batch_of(bucket)
        raise StopIteration

    def _next_element(self) -> Waiting | None:
        """Return the next element; None at the end, or after many bad records."""
        parts = len(self._key_parts)
        elements = self._records(1)
        if not elements:
            return None
        key = np.concatenate(self._key_parts[parts:])
        del self._key_parts[parts:]
        return Waiting(self._consumed - 1, key, elements[0])

    def _bucket_of(self, one: Waiting) -> int:
        try:
            return self._buckets.bucket_of(one.element)
        except Exception as error:
            raise self._noted(error, f"measured record {one.key[0]}") from None

    def _batch_of(self, bucket: int) -> Any:
        """Return the batch of all elements that wait in a bucket."""
        some, self._waiting[bucket] = self._waiting[bucket], []
        self._key_parts += [one.key for one in some]
        try:
            return self._buckets.batch([one.element for one in some], bucket)
        except Exception as error:
            text = f"made a batch of {len(some)} elements"
            raise self._noted(error, text) from None

    def _noted(self, error: Exception, doing: str) -> Exception:
        failure = as_failure(error, type(self._spec).__name__)
        failure.add_note(f"while {type(self._spec).__name__} {doing}")
        return failure

    def _read_again(self) -> None:
        """Read the elements that wait at the position."""
        consumed = self._consumed
        waiting: list[list[Waiting]] = [[] for _ in self._buckets.sizes]
        self.record_errors.replay()
        for position in self._unread:
            super().seek((position,))
            one = self._next_element()
            if one is None or one.position != position:
                raise StateMismatch(
                    f"The state has an element of record {position} of a stream that"
                    " waits for its batch, but that record does not give an element."
                    " The state was saved by another pipeline, or the data have"
                    " changed."
                )
            waiting[self._bucket_of(one)].append(one)
        super().seek((consumed,))
        self._waiting, self._unread = waiting, ()
        self.position = self._here()
