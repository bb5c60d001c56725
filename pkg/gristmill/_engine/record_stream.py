"""Runs a chain over `Record` objects, for steps that only make sense on them.

Flat-maps, legacy operations (callables over an iterator of records) and random
steps after a batch see a record's metadata and its own generator, so here every
element travels with them.  Every other chain runs in `NativeStream`.
"""

from __future__ import annotations

import ctypes
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gristmill import batching, transforms
from gristmill import operations as legacy
from gristmill._base import log
from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill._engine.block_reading import BlockReading, open_reading
from gristmill._engine.program import Program, as_number, holds_back, is_legacy
from gristmill._engine.reading import Reading
from gristmill._engine.tolerance import Mishaps
from gristmill._hot.place import Place
from gristmill.records import Record, RecordMetadata

Vector = tuple[int, ...]
Records = Iterator[Record[Any]]
DRAWING = (transforms.RandomMap, transforms.TfRandomMap, legacy.RandomMapOperation)


class Node:
    """One step of the chain: an iterator with a position.

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
    """

    key: Any = None

    def __init__(
        self, program: Program, stream: int, at: int, reading: Reading | BlockReading
    ) -> None:
        self._program = program
        self._stream = stream
        self._reading = reading
        self._length = program.stream_length(stream)
        self._told = ctypes.c_int64.from_address(at) if at else ctypes.c_int64()
        self._read = 0
        self._keys: list[int] = []

    def __next__(self) -> Record[Any]:
        if self._read >= self._length:
            raise StopIteration
        keys = self._program.keys
        local = self._stream + self._read * self._program.streams
        self._read += 1
        metadata = keys.metadata(local)
        self.key = key = keys.source_key(metadata.record_key)
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
            return self._program.source[key]
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


class StepNode(Node):
    """A map of any kind."""

    def __init__(self, parent: Node, transform: Any) -> None:
        super().__init__(parent)
        self._transform = transform

    def __next__(self) -> Record[Any]:
        record = next(self._parent)
        with Noting(self._transform, record.metadata, self.keys):
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
            record = next(self._parent)
            with Noting(self._transform, record.metadata, self.keys):
                if self._transform.filter(record.data):
                    return record


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
        with Noting(self._batch, metadata, self._keys):
            return Record(metadata, self._make([record.data for record in records]))

    @property
    def keys(self) -> list[int]:
        """Keys of the records in the last batch."""
        return self._keys

    def _make(self, values: list[Any]) -> Any:
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

    def __next__(self) -> Record[Any]:
        while self._given >= len(self._splits):
            self._before = self._parent.state()
            try:
                record = next(self._parent)
                self._splits, self._given = [], 0
                self._splits = self._split(record)
            except StopIteration:
                # The position at the end keeps the last count, as Grain's does.
                raise
            except Exception:
                self._before = self._parent.state()
                self._splits, self._given = [], 0
                raise
        split = self._splits[self._given]
        self._given += 1
        return split

    def _split(self, record: Record[Any]) -> list[Record[Any]]:
        offset = record.metadata.index * self._transform.max_fan_out
        with Noting(self._transform, record.metadata, self.keys):
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
            try:
                self._splits = self._split(next(self._parent))
            except StopIteration:
                self._splits = []


class SplitDrawNode(Node):
    """Stands above a step that draws from a generator that splits share.

    Seeking computes the splits given out before once more, for their draws.

    Args:
        parent: The step.
        flat_maps: How many of them made the splits, at least 1.
    """

    def __init__(self, parent: Node, flat_maps: int) -> None:
        super().__init__(parent)
        self._flat_maps = flat_maps

    def __next__(self) -> Record[Any]:
        return next(self._parent)

    def seek(self, vector: Vector) -> None:
        """Go to before the record in hand, and on from there."""
        given = vector[-self._flat_maps :]
        if not any(given):
            self._parent.seek(vector)
            return
        self._parent.seek(vector[: -self._flat_maps] + (0,) * len(given))
        while self.state() < vector:
            try:
                next(self._parent)
            except StopIteration:
                break
            except Exception:
                # It was raised when this split was first due, and passed over.
                continue
        if self.state() != vector:
            # The end of the data keeps the count of splits of the last record.
            self._parent.seek(vector)


class LegacyNode(Node):
    """A callable from an iterator of records to an iterator of records."""

    def __init__(self, parent: Node, operation: Any) -> None:
        super().__init__(parent)
        self._keys: list[int] = []
        self._tap = _Tap(parent)
        self._iterator: Records = iter(operation(self._tap))

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


class RecordStream:
    """A chain over records.  See `stream.Stream`.

    Its position is the number of records read, then for each flat-map the splits
    given out of the record in hand.  With a legacy operation more follows: the
    position at which the operations were made afresh, and the outputs since. What
    such an operation holds back is made again from there.
    """

    _legacy_node: Callable[[Node, Any], Node] = LegacyNode

    def __init__(
        self, program: Program, stream: int, at: int, look_ahead: bool
    ) -> None:
        self.keys: Int64Array = np.empty(0, np.int64)
        self.vector: Vector = (0,) * program.vector_length
        self.mishaps = Mishaps(stream)
        self._program = program
        self._stream = stream
        self._at = at
        self._reading = open_reading(program, stream, look_ahead)
        self._chain: Node | None = None
        self._given = 0
        self._made_at: Vector = ()

    def seek(self, vector: Vector) -> None:
        """Make the next output the one that follows `vector`."""
        if vector[0] != self.vector[0]:
            self._reading.forget()
        self.vector = vector
        self._chain = None

    def next(self, alloc: Alloc | None = None) -> Any:
        """The next output, see `Stream.next`."""
        chain = self._chain if self._chain is not None else self._resume()
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
        self.keys = np.array(chain.keys, np.int64)
        return record.data

    def start_prefetch(self) -> None:
        """Begin to read ahead."""
        self._reading.start(self.vector[0])

    def close(self) -> None:
        """Stop reading ahead; let go of the chain and what it holds back."""
        self._reading.close()
        self._chain = None

    def _position(self, chain: Node) -> Vector:
        state = chain.state()
        if self._program.opaque:
            return (*state, *self._made_at, self._given)
        return state

    def _resume(self) -> Node:
        chain = self._build()
        if self._program.opaque:
            *made_at, outputs = self.vector[1 + self._program.flat_maps :]
            self._made_at, self._given = tuple(made_at), outputs
            chain.seek(self._made_at)
            if outputs:
                _warn_once(self._program)
            deque(itertools.islice(chain, outputs), maxlen=0)
        else:
            chain.seek(self.vector)
        self._chain = chain
        return chain

    def _build(self) -> Node:
        return self._extend(self._reader(), 0, len(self._program.operations))

    def _reader(self) -> ReadNode:
        return ReadNode(self._program, self._stream, self._at, self._reading)

    def _extend(self, chain: Node, begin: int, end: int) -> Node:
        """The chain with operations [begin, end) on top.

        REQUIRES: those before are flat-maps, one-to-one steps and filters.
        """
        operations = self._program.operations
        # Flat-maps whose single splits arrive here.
        flat_maps = sum(isinstance(op, transforms.FlatMap) for op in operations[:begin])
        for number, op in enumerate(operations[begin:end], begin):
            if isinstance(op, transforms.FlatMap):
                chain = FlatMapNode(chain, op)
                flat_maps += 1
            elif isinstance(op, transforms.Batch):
                draws = any(isinstance(later, DRAWING) for later in operations[number:])
                own = draws and flat_maps > 0
                chain = BatchNode(chain, op, self._program.rules, own)
                flat_maps = 0
            elif isinstance(op, transforms.Filter):
                chain = FilterNode(chain, op)
            elif is_legacy(op):
                chain = self._legacy_node(chain, op)
            else:
                chain = StepNode(chain, op)
            if holds_back(op):
                flat_maps = 0
            if flat_maps and isinstance(op, DRAWING):
                chain = SplitDrawNode(chain, flat_maps)
        return chain


class Noting:
    """Adds the operation and record to an exception that passes through."""

    def __init__(
        self, operation: Any, metadata: RecordMetadata, keys: list[int]
    ) -> None:
        self._operation = operation
        self._index = metadata.index
        self._keys = keys

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            name = type(self._operation).__name__
            key = self._keys[-1] if self._keys else None
            error.add_note(Place(name, key, self._index))


_warned: set[str] = set()


def _warn_once(program: Program) -> None:
    names = [type(op).__name__ for op in program.operations if is_legacy(op)]
    text = ", ".join(names)
    if text not in _warned:
        _warned.add(text)
        log.warning(
            "%s keeps records back without a state: everything since it was made is "
            "computed again on resume. Use a Map, Filter or Batch instead.",
            text,
        )
