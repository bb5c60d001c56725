"""Nodes of a chain over `Record` objects, except for steps: see `record_steps`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gristmill import batching, transforms
from gristmill._base.argument_checks import kind
from gristmill._base.object_repr import value_text
from gristmill._base.types import Rules
from gristmill._engine.block_queue import BlockReading
from gristmill._engine.program import Program, as_number
from gristmill._engine.reading import Reading, read_each
from gristmill._engine.stage_times import READ
from gristmill._engine.stream import Position, record_word
from gristmill._engine.stream_keys import StreamKeys
from gristmill._hot import run as hot_run
from gristmill._hot.error_location import ErrorLocation, as_failure
from gristmill.records import Record, RecordMetadata

ADVICE = (
    "A function among the operations gets an iterator of all Records, and returns one."
    " To call a function with each element, pass an instance of a MapTransform whose"
    " map(element) calls it."
)


class Node:
    """A part of the chain: an iterator with a position.

    `state()` returns the position after the last record returned; `seek` goes there.
    `keys` are the keys of the records from which that record was made.  Splits of one
    record share one list, so a batch of splits counts the record once.
    """

    def __init__(self, parent: Node) -> None:
        self._parent = parent

    def __iter__(self) -> Node:
        return self

    def __next__(self) -> Record[Any]:
        raise StopIteration

    @property
    def keys(self) -> Sequence[int]:
        """The keys of the records from which the last record returned was made."""
        return self._parent.keys

    def state(self) -> Position:
        """Return the number of records read, then one integer for each flat-map."""
        return self._parent.state()

    def seek(self, position: Position) -> None:
        """Continue after `position`."""
        self._parent.seek(position)


class ReadNode(Node):
    """Reads the records of one stream, and writes the current key to `record_address`.

    Attributes:
        key: The key of the last read.
        end: The position at which the stream ends, as far as is known.
    """

    key: Any = None
    keys: Sequence[int] = ()

    def __init__(
        self,
        program: Program,
        stream_keys: StreamKeys,
        record_address: int,
        reading: Reading | BlockReading,
    ) -> None:
        self.stream_keys = stream_keys
        self._source = program.source
        self._reading = reading
        self._current_record = record_word(record_address)
        self._read = 0
        self.end = stream_keys.length

    def __next__(self) -> Record[Any]:
        if self._read >= self.end:
            raise StopIteration
        self._read += 1
        try:
            metadata = self.stream_keys.metadata(self._read - 1)
            self.key = key = self.stream_keys.key_of(metadata)
            self._current_record.value = as_number(key)
            stage_start = hot_run.begin()
            read = self._reading.read(self._read - 1, [key])
            elements, failure = read or read_each(self._source, [key])
            hot_run.end(READ, stage_start)
            if failure is not None:
                failure.add_note(ErrorLocation(None, key, metadata.index))
                raise failure
        except StopIteration:
            # The source or the sampler ends here, until the next seek.
            self._read -= 1
            self.end = self._read
            raise
        self.keys = [as_number(key)]
        return Record(metadata=metadata, data=elements[0])

    def state(self) -> Position:
        return (self._read,)

    def seek(self, position: Position) -> None:
        self._read = position[0]
        self.end = self.stream_keys.length


class BatchNode(Node):
    """Groups records into batches; a batch has the metadata of its last record.

    Splits of a record share a generator.  If `own_generator` is true, a batch of splits
    gets its own one, because a position does not contain which batches have drawn from
    the shared one.
    """

    keys: Sequence[int] = ()

    def __init__(
        self, parent: Node, batch: transforms.Batch, rules: Rules, own_generator: bool
    ) -> None:
        super().__init__(parent)
        self._batch = batch
        self._rules = rules
        self._own_generator = own_generator

    def __next__(self) -> Record[Any]:
        records: list[Record[Any]] = []
        sources: list[Sequence[int]] = []
        for record in self._parent:
            records.append(record)
            sources.append(self._parent.keys)
            if len(records) == self._batch.batch_size:
                break
        short = len(records) < self._batch.batch_size
        if not records or (short and self._batch.drop_remainder):
            raise StopIteration
        self.keys = _join_keys(sources)
        metadata = records[-1].metadata.remove_record_key()
        if self._own_generator and metadata.rng is not None:
            # Batches of one record differ in the index, so they jump to other places.
            bits = metadata.rng.bit_generator.jumped(metadata.index + 1)  # type: ignore[attr-defined]
            metadata = RecordMetadata(metadata.index, rng=np.random.Generator(bits))
        values = [record.data for record in records]
        try:
            if self._batch.batch_fn is not None:
                return Record(metadata, self._batch.batch_fn(values))
            return Record(metadata, batching.make_batch(values, rules=self._rules))
        except Exception as error:
            failure = as_failure(error, type(self._batch).__name__)
            failure.add_note(location_in(self._batch, metadata, self.keys))
            if failure is error:
                raise
            raise failure from error


class LegacyNode(Node):
    """A callable from an iterator of records to an iterator of records.

    `seek` is called only before the first record; `RecordStream` makes a new chain for
    later ones.

    Args:
        parent: The node of the input records.
        operation: The callable.
        number: The index of the operation in the list of operations, for errors.
        attributes: Attributes of its output records that the next operations use.
    """

    keys: Sequence[int] = ()

    def __init__(
        self, parent: Node, operation: Any, number: int, attributes: Sequence[str]
    ) -> None:
        super().__init__(parent)
        self._name = f"operations[{number}] ({value_text(operation)})"
        self._attributes = attributes
        self._records = RecordIterator(parent)
        try:
            iterator = operation(self._records)
        except Exception as error:
            failure = as_failure(error, value_text(operation))
            if failure is not self._records.failure:
                failure.add_note(f"{self._name} was called with an iterator. {ADVICE}")
            if failure is error:
                raise
            raise failure from error
        try:
            self._iterator: Iterator[Record[Any]] = iter(iterator)
        except TypeError as error:
            raise TypeError(
                f"{self._name} must return an iterator of Records, got"
                f" {kind(iterator)}. {ADVICE}"
            ) from error

    def __next__(self) -> Record[Any]:
        self._records.sources.clear()
        try:
            record = next(self._iterator)
        except StopIteration:
            raise
        except Exception as error:
            if error is not self._records.failure:
                # An operation that has returned a record needs no advice.
                advice = "" if self.keys else f" {ADVICE}"
                error.add_note(f"{self._name} iterated over Records.{advice}")
            self._records.failure = None  # It refers to this frame.
            raise
        if type(record) is not Record:
            self._check(record)
        # If no record was read for this output, it counts for the last record read.
        self.keys = _join_keys(self._records.sources) or self.keys[-1:]
        return record

    def _check(self, record: Any) -> None:
        """Raise TypeError if an output lacks an attribute that later operations use."""
        if not all(hasattr(record, name) for name in self._attributes):
            raise TypeError(
                f"{self._name} must return Records, got {kind(record)}. A Record has"
                f" its element in the attribute `data`. {ADVICE}"
            )


class RecordIterator(Node):
    """Passes records on to a legacy operation, and remembers their keys.

    Attributes:
        failure: The exception of the parent, which the operation did not cause.
        sources: The keys of each record passed on since the operation's last output.
    """

    failure: Exception | None = None

    def __init__(self, parent: Node) -> None:
        super().__init__(parent)
        self.sources: list[Sequence[int]] = []

    def __next__(self) -> Record[Any]:
        try:
            record = next(self._parent)
        except StopIteration:
            raise
        except Exception as error:
            self.failure = error
            raise
        self.sources.append(self._parent.keys)
        return record


def _join_keys(sources: list[Sequence[int]]) -> list[int]:
    """Return the keys of some records, once for all splits of one record.

    Splits of a record are adjacent, and have the same list object.
    """
    each = (next(same) for _, same in itertools.groupby(sources, id))
    return list(itertools.chain.from_iterable(each))


def location_in(
    operation: Any, metadata: RecordMetadata, keys: Sequence[int]
) -> ErrorLocation:
    """Return the note for an exception of an operation."""
    key = keys[-1] if keys else None
    return ErrorLocation(type(operation).__name__, key, metadata.index)
