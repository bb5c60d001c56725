"""Runs a chain over `Record` objects, for steps that only make sense on them.

Flat-maps, legacy operations (callables over an iterator of records) and random
steps after a batch see a record's metadata and its own generator, so here every
element travels with them.  Every other chain runs in `NativeStream`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gristmill import _log, batching, transforms
from gristmill._engine.program import Program, as_number, is_legacy
from gristmill._types import Alloc, Int64Array, Rules
from gristmill.records import Record, RecordMetadata

Vector = tuple[int, ...]
Records = Iterator[Record[Any]]


class Node:
    """One step of the chain: an iterator with a position.

    `state()` is the position after the last record given out; `seek` goes there.
    `keys`, one list for the whole chain, is what the output in work is made of.
    """

    keys: list[int]

    def __init__(self, parent: Node) -> None:
        self._parent = parent
        self.keys = parent.keys

    def __iter__(self) -> Node:
        return self

    def __next__(self) -> Record[Any]:
        raise StopIteration

    def state(self) -> Vector:
        """Integers: records read, then one for each flat-map."""
        return self._parent.state()

    def seek(self, vector: Vector) -> None:
        """Continue after `vector`."""
        self._parent.seek(vector)


class ReadNode(Node):
    """Reads the records of one stream."""

    def __init__(self, program: Program, stream: int) -> None:
        self._program = program
        self._stream = stream
        self._length = program.stream_length(stream)
        self._read = 0
        self.keys = []

    def __next__(self) -> Record[Any]:
        if self._read >= self._length:
            raise StopIteration
        keys = self._program.keys
        local = self._stream + self._read * self._program.streams
        self._read += 1
        metadata = keys.metadata(local)
        key = keys.source_key(metadata.record_key)
        try:
            data = self._program.source[key]
        except Exception as error:
            error.add_note(f"while reading record {key} (index {metadata.index})")
            raise
        self.keys.append(as_number(key))
        return Record(metadata=metadata, data=data)

    def state(self) -> Vector:
        """Records read."""
        return (self._read,)

    def seek(self, vector: Vector) -> None:
        """Read on after ``vector[0]`` records."""
        self._read = vector[0]


class StepNode(Node):
    """A map of any kind."""

    def __init__(self, parent: Node, transform: Any) -> None:
        super().__init__(parent)
        self._transform = transform

    def __next__(self) -> Record[Any]:
        record = next(self._parent)
        with _Noting(self._transform, record.metadata):
            return Record(record.metadata, self._apply(record))

    def _apply(self, record: Record[Any]) -> Any:
        transform = self._transform
        # Without a seed there is no generator, and Grain passes None all the same.
        rng: Any = record.metadata.rng
        if isinstance(transform, transforms.Map):
            return transform.map(record.data)
        if isinstance(transform, transforms.RandomMap):
            return transform.random_map(record.data, rng)
        if isinstance(transform, transforms.TfRandomMap):
            return transform.np_random_map(record.data, rng)
        return transform.map_with_index(record.metadata.index, record.data)


class FilterNode(Node):
    """Keeps the records that a predicate is true of."""

    def __init__(self, parent: Node, transform: transforms.Filter) -> None:
        super().__init__(parent)
        self._transform = transform

    def __next__(self) -> Record[Any]:
        while True:
            known = len(self.keys)
            record = next(self._parent)
            with _Noting(self._transform, record.metadata):
                if self._transform.filter(record.data):
                    return record
            del self.keys[known:]


class BatchNode(Node):
    """Groups records; the batch has the metadata of its last one."""

    def __init__(self, parent: Node, batch: transforms.Batch, rules: Rules) -> None:
        super().__init__(parent)
        self._batch = batch
        self._rules = rules

    def __next__(self) -> Record[Any]:
        records: list[Record[Any]] = []
        for record in self._parent:
            records.append(record)
            if len(records) == self._batch.batch_size:
                break
        short = len(records) < self._batch.batch_size
        if not records or (short and self._batch.drop_remainder):
            raise StopIteration
        values = [record.data for record in records]
        metadata = records[-1].metadata.remove_record_key()
        with _Noting(self._batch, metadata):
            return Record(metadata, self._make(values))

    def _make(self, values: Sequence[Any]) -> Any:
        if self._batch.batch_fn is not None:
            return self._batch.batch_fn(values)
        return batching.make_batch(values, rules=self._rules)


class FlatMapNode(Node):
    """Makes any number of records of each; adds one integer to the position."""

    def __init__(self, parent: Node, transform: transforms.FlatMap) -> None:
        super().__init__(parent)
        self._transform = transform
        self._before = parent.state()
        self._splits: list[Record[Any]] = []
        self._given = 0
        self._own_keys: list[int] = []

    def __next__(self) -> Record[Any]:
        while self._given >= len(self._splits):
            self._before = self._parent.state()
            known = len(self.keys)
            record = next(self._parent)
            self._own_keys = self.keys[known:] or self._own_keys
            self._given, self._splits = 0, []
            try:
                self._splits = self._split(record)
            except Exception:
                self._before = self._parent.state()
                raise
            # They count with the first split, and not at all where there is none.
            del self.keys[known:]
        split = self._splits[self._given]
        self._given += 1
        own = self._own_keys
        if self.keys[-len(own) :] != own:
            self.keys += own
        return split

    def _split(self, record: Record[Any]) -> list[Record[Any]]:
        offset = record.metadata.index * self._transform.max_fan_out
        with _Noting(self._transform, record.metadata):
            splits = list(self._transform.flat_map(record.data))
        rng = record.metadata.rng
        return [
            Record(RecordMetadata(index=offset + k, rng=rng), split)
            for k, split in enumerate(splits)
        ]

    def state(self) -> Vector:
        """The position before the record in hand, and its splits given out."""
        return (*self._before, self._given)

    def seek(self, vector: Vector) -> None:
        """Make the splits of the record in hand again and skip those given out."""
        *before, given = vector
        self._before = tuple(before)
        self._parent.seek(self._before)
        self._splits, self._given = [], given
        if given:
            known = len(self.keys)
            try:
                self._splits = self._split(next(self._parent))
            except StopIteration:
                self._splits = []
            self._own_keys = self.keys[known:]


class LegacyNode(Node):
    """A callable from an iterator of records to an iterator of records."""

    def __init__(self, parent: Node, operation: Any) -> None:
        super().__init__(parent)
        self._iterator: Records = iter(operation(parent))

    def __next__(self) -> Record[Any]:
        return next(self._iterator)


class RecordStream:
    """A chain over records.  See `stream.Stream`.

    Its position is the number of records read, then for each flat-map the splits
    given out of the record in hand.  With a legacy operation more follows: the
    position at which the operations were made afresh, and the outputs since. What
    such an operation holds back is made again from there.
    """

    def __init__(self, program: Program, stream: int, at: int) -> None:
        self.keys: Int64Array = np.empty(0, np.int64)
        self.vector: Vector = (0,) * program.vector_length
        self._program = program
        self._stream = stream
        self._chain: Node | None = None
        self._reader = ReadNode(program, stream)
        self._given = 0
        self._made_at: Vector = ()
        self._last_key: list[int] = []
        # The highest node whose records are single splits, where those draw.
        self._drawing: Node | None = None

    def seek(self, vector: Vector) -> None:
        """Make the next output the one that follows `vector`."""
        self.vector = vector
        self._chain = None

    def next(self, alloc: Alloc | None = None) -> Any:
        """The next output, see `Stream.next`."""
        chain = self._chain if self._chain is not None else self._resume()
        self._reader.keys.clear()
        try:
            record = next(chain)
        except Exception:
            self.vector = self._position(chain)
            raise
        except BaseException:
            self._chain = None
            raise
        self._given += 1
        self.vector = self._position(chain)
        self._last_key = self._reader.keys[-1:] or self._last_key
        self.keys = np.array(self._reader.keys or self._last_key, np.int64)
        return record.data

    def start_prefetch(self) -> None:
        """Nothing is read ahead: the steps pull records when they need them."""

    def close(self) -> None:
        """Let go of the chain and what it holds back."""
        self._chain = None

    def _position(self, chain: Node) -> Vector:
        state = chain.state()
        if self._program.opaque:
            return (*state, *self._made_at, self._given)
        return state

    def _resume(self) -> Node:
        self._reader = ReadNode(self._program, self._stream)
        chain = self._build()
        if self._program.opaque:
            integers = 1 + self._program.flat_maps
            *made_at, outputs = self.vector[integers:]
            self._made_at, self._given = tuple(made_at), outputs
            self._seek(chain, self._made_at)
            if outputs:
                _warn_once(self._program)
            for _ in range(outputs):
                next(chain, None)
        else:
            self._seek(chain, self.vector)
        self._chain = chain
        return chain

    def _seek(self, chain: Node, vector: Vector) -> None:
        """Go to a position, generators included.

        All splits of a record draw from its one generator, so those given out
        before are computed again for their draws.
        """
        top = self._drawing
        record, *given = vector
        if top is None or not any(given):
            chain.seek(vector)
            return
        top.seek((record, *[0] * len(given)))
        while top.state() != vector and top.state()[0] <= record:
            try:
                next(top)
            except StopIteration:
                break
            except Exception:
                # It was raised when this split was first due, and passed over.
                continue
        if top.state() != vector:
            chain.seek(vector)

    def _build(self) -> Node:
        chain: Node = self._reader
        drawing = _drawing_steps(self._program.operations)
        for built, op in enumerate(self._program.operations, 1):
            if is_legacy(op):
                chain = LegacyNode(chain, op)
            elif isinstance(op, transforms.FlatMap):
                chain = FlatMapNode(chain, op)
            elif isinstance(op, transforms.Filter):
                chain = FilterNode(chain, op)
            elif isinstance(op, transforms.Batch):
                chain = BatchNode(chain, op, self._program.rules)
            else:
                chain = StepNode(chain, op)
            if built == drawing:
                self._drawing = chain
        return chain


def _drawing_steps(operations: Sequence[Any]) -> int:
    """How many operations there are up to the last that takes single splits.

    0 where none of those draws, or where splits are grouped and then split again.
    """
    steps, split, draws = 0, False, False
    for op in operations:
        if split and (is_legacy(op) or isinstance(op, transforms.Batch)):
            break
        split = split or isinstance(op, transforms.FlatMap)
        random = isinstance(op, (transforms.RandomMap, transforms.TfRandomMap))
        draws = draws or (split and random)
        steps += 1
    again = any(isinstance(op, transforms.FlatMap) for op in operations[steps:])
    return steps if draws and not again else 0


class _Noting:
    """Adds the operation and record to an exception that passes through."""

    def __init__(self, operation: Any, metadata: RecordMetadata) -> None:
        self._operation = operation
        self._metadata = metadata

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            key, index = self._metadata.record_key, self._metadata.index
            name = type(self._operation).__name__
            error.add_note(f"while {name} processed record {key} (index {index})")


_warned: set[str] = set()


def _warn_once(program: Program) -> None:
    names = [type(op).__name__ for op in program.operations if is_legacy(op)]
    text = ", ".join(names)
    if text not in _warned:
        _warned.add(text)
        _log.warning(
            "%s keeps records back without a state: everything since it was made is "
            "computed again on resume. Use a Map, Filter or Batch instead.",
            text,
        )
