"""What a chain over `Record` objects is made of, but for steps: see `record_steps`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from gristmill import batching, transforms
from gristmill._base.types import Rules
from gristmill._engine.block_reading import BlockReading
from gristmill._engine.program import Program, as_number
from gristmill._engine.reading import Reading
from gristmill._engine.stream import Vector
from gristmill._engine.stream_keys import StreamKeys
from gristmill._hot.place import Place
from gristmill.records import Record, RecordMetadata


class Node:
    """A part of the chain: an iterator with a position.

    `state()` is the position after the last record given out; `seek` goes there.
    `keys` says what that record is made of.  Splits of one record share one list,
    so that a batch of them counts it once.
    """

    def __init__(self, parent: Node) -> None:
        self._parent = parent

    def __iter__(self) -> Node:
        return self

    def __next__(self) -> Record[Any]:
        raise StopIteration

    @property
    def keys(self) -> list[int]:
        """Keys of the records that the last one given out is made of."""
        return self._parent.keys

    def state(self) -> Vector:
        """Integers: records read, then one for each flat-map."""
        return self._parent.state()

    def seek(self, vector: Vector) -> None:
        """Continue after `vector`."""
        self._parent.seek(vector)


class ReadNode(Node):
    """Reads the records of one stream, and tells which one at address `at`.

    Attributes:
        key: What the source was asked for last.
        positions: Which records stand at the positions of the stream.
    """

    key: Any = None

    def __init__(
        self,
        program: Program,
        positions: StreamKeys,
        at: int,
        reading: Reading | BlockReading,
    ) -> None:
        self.positions = positions
        self._source = program.source
        self._reading = reading
        self._told = ctypes.c_int64.from_address(at) if at else ctypes.c_int64()
        self._read = 0
        self._keys: list[int] = []

    def __next__(self) -> Record[Any]:
        if self._read >= self.positions.length:
            raise StopIteration
        self._read += 1
        metadata = self.positions.metadata(self._read - 1)
        self.key = key = self.positions.key_of(metadata)
        self._told.value = as_number(key)
        try:
            data = self._data(key)
        except Exception as error:
            error.add_note(Place(None, key, metadata.index))
            raise
        self._keys = [as_number(key)]
        return Record(metadata=metadata, data=data)

    def _data(self, key: Any) -> Any:
        read = self._reading.read(self._read - 1, [key])
        if read is None:
            return self._source[key]
        elements, failure = read
        if failure is not None:
            raise failure
        return elements[0]

    @property
    def keys(self) -> list[int]:
        """The key of the last record."""
        return self._keys

    def state(self) -> Vector:
        """Records read."""
        return (self._read,)

    def seek(self, vector: Vector) -> None:
        """Read on after ``vector[0]`` records."""
        self._read = vector[0]


class BatchNode(Node):
    """Groups records; the batch has the metadata of its last one.

    Args:
        parent: Gives the records.
        batch: How many, and how to make one of them.
        rules: How elements are taken apart.
        of_splits: Whether records may be splits that share a generator.  The batch
            then has one of its own, because which of the batches that end in a
            record drew from it is more than a position can say.
    """

    def __init__(
        self, parent: Node, batch: transforms.Batch, rules: Rules, of_splits: bool
    ) -> None:
        super().__init__(parent)
        self._batch = batch
        self._rules = rules
        self._of_splits = of_splits
        self._keys: list[int] = []

    def __next__(self) -> Record[Any]:
        records: list[Record[Any]] = []
        sources = _Sources()
        for record in self._parent:
            records.append(record)
            sources.add(self._parent.keys)
            if len(records) == self._batch.batch_size:
                break
        short = len(records) < self._batch.batch_size
        if not records or (short and self._batch.drop_remainder):
            raise StopIteration
        self._keys = sources.keys
        metadata = records[-1].metadata.remove_record_key()
        if self._of_splits and metadata.rng is not None:
            own = metadata.rng.bit_generator.jumped(metadata.index + 1)  # type: ignore[attr-defined]
            metadata = RecordMetadata(metadata.index, rng=np.random.Generator(own))
        try:
            return Record(metadata, self._make([record.data for record in records]))
        except Exception as error:
            error.add_note(place_in(self._batch, metadata, self._keys))
            raise

    @property
    def keys(self) -> list[int]:
        """Keys of the records in the last batch."""
        return self._keys

    def _make(self, values: list[Any]) -> Any:
        if self._batch.batch_fn is not None:
            return self._batch.batch_fn(values)
        return batching.make_batch(values, rules=self._rules)


class LegacyNode(Node):
    """A callable from an iterator of records to an iterator of records."""

    def __init__(self, parent: Node, operation: Any) -> None:
        super().__init__(parent)
        self._keys: list[int] = []
        self._tap = _Tap(parent)
        self._iterator: Iterator[Record[Any]] = iter(operation(self._tap))

    def __next__(self) -> Record[Any]:
        self._tap.sources = _Sources()
        record = next(self._iterator)
        # What it makes of records that it held back counts to the last one read.
        self._keys = self._tap.sources.keys or self._keys[-1:]
        return record

    @property
    def keys(self) -> list[int]:
        """Keys of the records that were read for the last one given out."""
        return self._keys


class _Tap(Node):
    """Passes records on to a legacy operation, and remembers their keys."""

    def __init__(self, parent: Node) -> None:
        super().__init__(parent)
        self.sources = _Sources()

    def __next__(self) -> Record[Any]:
        record = next(self._parent)
        self.sources.add(self._parent.keys)
        return record


class _Sources:
    """Collects the keys of records, once for the splits of one."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        self._last: list[int] | None = None

    def add(self, keys: list[int]) -> None:
        if keys is not self._last:
            self.keys += keys
            self._last = keys


def place_in(operation: Any, metadata: RecordMetadata, keys: list[int]) -> Place:
    """What is noted on an exception of an operation."""
    key = keys[-1] if keys else None
    return Place(type(operation).__name__, key, metadata.index)
