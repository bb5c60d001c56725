"""Runs a chain over `Record` objects and passes over records that fail.

Only steps that see one record alone are tolerant: those before the first batch, or
legacy operation that may hold records back.  What raises after it is raised.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from gristmill import operations as legacy
from gristmill import transforms
from gristmill._base.types import Alloc
from gristmill._engine.program import Program, as_number, holds_back
from gristmill._engine.record_stream import (
    LegacyNode,
    Node,
    Noting,
    ReadNode,
    RecordStream,
    Vector,
)
from gristmill._engine.tolerance import (
    Mishaps,
    blamed,
    forgivable,
    none_stands_in,
    stand_ins,
)
from gristmill.records import Record

Made = tuple[Record[Any], Vector, list[int]]


class OneByOneNode(Node):
    """A legacy operation that is asked about one record at a time.

    As an iterator over records it would end with the first exception.
    """

    def __init__(self, parent: Node, operation: legacy.OneByOne) -> None:
        super().__init__(parent)
        self._operation = operation
        operation.warn()

    def __next__(self) -> Record[Any]:
        while True:
            record = next(self._parent)
            with Noting(self._operation, record.metadata, self.keys):
                made = self._operation.made_of(record)
            if made is not None:
                return made


class SkipNode(Node):
    """Leaves out what fails below.

    Args:
        parent: Steps over the records of `reader`.
        reader: Knows the record in work.
        mishaps: Told of the bad records.
        passes: Whether to stop for a while where they are many and nothing else.
    """

    def __init__(
        self, parent: Node, reader: ReadNode, mishaps: Mishaps, passes: bool
    ) -> None:
        super().__init__(parent)
        self._reader = reader
        self._mishaps = mishaps
        self._passes = passes

    def __next__(self) -> Record[Any]:
        while not (self._passes and self._mishaps.many):
            try:
                record = next(self._parent)
            except Exception as error:
                place = blamed(error)
                if place is None:
                    raise
                self._mishaps.add(error, place, self._reader.key)
            else:
                self._mishaps.alone = False
                return record
        raise StopIteration


class OneNode(Node):
    """Gives one record, and then says that it is spent."""

    def __init__(self) -> None:
        self._record: Record[Any] | None = None
        self._position = 0
        self._keys: list[int] = []
        self.spent = False

    def put(self, record: Record[Any], position: int, keys: list[int]) -> None:
        """Give this record next, as the one at `position`."""
        self._record, self._position, self._keys = record, position, keys
        self.spent = False

    def __next__(self) -> Record[Any]:
        record, self._record = self._record, None
        if record is None:
            self.spent = True
            raise StopIteration
        return record

    @property
    def keys(self) -> list[int]:
        """Keys of the record."""
        return self._keys

    def state(self) -> Vector:
        """Records read."""
        return (self._position + (self._record is None),)

    def seek(self, vector: Vector) -> None:
        """Do nothing: `put` says where this is."""


class SubstituteNode(Node):
    """Gives what records become, each as a whole.

    Where anything that a record becomes fails, all of it is what another record
    becomes with the index and the generator of this one.

    Args:
        reader: Gives the records.
        program: Whose records they are.
        stream: Number of the stream.
        extend: Puts the steps on top of a node.
        mishaps: Told of the bad records.
        passes: Whether to stop for a while where they are many and nothing else.
    """

    def __init__(
        self,
        reader: ReadNode,
        program: Program,
        stream: int,
        extend: Callable[[Node], Node],
        mishaps: Mishaps,
        passes: bool,
    ) -> None:
        super().__init__(reader)
        self._reader = reader
        self._program = program
        self._stream = stream
        self._length = program.stream_length(stream)
        self._mishaps = mishaps
        self._passes = passes
        self._one = OneNode()
        self._steps = extend(self._one)
        self._made: collections.deque[Made] = collections.deque()
        self._none_given: Vector = (0,) * (len(self._steps.state()) - 1)
        # Splits that each flat-map made of the last record, or of a split of it.
        self._given = self._none_given
        self._state: Vector = (0, *self._none_given)
        self._keys: list[int] = []

    def __next__(self) -> Record[Any]:
        while not self._made:
            try:
                if self._passes and self._mishaps.many:
                    raise StopIteration
                self._made = self._next_made()
            except Exception:
                [position] = self._parent.state()
                # The position at the end keeps the last counts, as Grain's does.
                ended = position == self._length
                self._state = (position, *(self._given if ended else self._none_given))
                raise
        self._mishaps.alone = False
        record, self._state, self._keys = self._made.popleft()
        return record

    @property
    def keys(self) -> list[int]:
        """Keys of the record that the last one given out was made of."""
        return self._keys

    def state(self) -> Vector:
        """The position after the last record given out."""
        return self._state

    def seek(self, vector: Vector) -> None:
        """Make what becomes of the record in hand again, and skip what was given."""
        position, *given = vector
        self._parent.seek((position,))
        self._made.clear()
        if any(given) and position < self._length:
            made = self._next_made()
            self._made.extend(one for one in made if one[1] > vector)
        self._state = vector

    def _next_made(self) -> collections.deque[Made]:
        """All that the next record becomes, or another in its place."""
        [position] = self._parent.state()
        try:
            record = next(self._parent)
            return self._run(record, position, self._parent.keys)
        except Exception as error:
            place = blamed(error)
            if place is None:
                raise
            bad = error
        tried: list[Any] = []
        for other in stand_ins(position, self._length):
            [key] = self._program.source_keys(self._stream, other, 1)
            local = self._stream + position * self._program.streams
            metadata = self._program.keys.metadata(local)
            try:
                record = Record(metadata, self._program.source[key])
                made = self._run(record, position, [as_number(key)])
            except Exception as error:
                if not forgivable(error):
                    raise
                tried.append(key)
                continue
            self._mishaps.add(bad, place, self._reader.key, key)
            return made
        raise none_stands_in(self._reader.key, tried) from bad

    def _run(
        self, record: Record[Any], position: int, keys: list[int]
    ) -> collections.deque[Made]:
        self._one.put(record, position, keys)
        self._steps.seek((position, *self._none_given))
        made: collections.deque[Made] = collections.deque()
        while True:
            try:
                made.append((next(self._steps), self._steps.state(), keys))
            except StopIteration:
                if not self._one.spent:
                    raise
                self._given = self._steps.state()[1:]
                return made


def _legacy_node(parent: Node, operation: Any) -> Node:
    if holds_back(operation):
        return LegacyNode(parent, operation)
    return OneByOneNode(parent, operation)


class TolerantRecordStream(RecordStream):
    """A `RecordStream` that skips or substitutes bad records."""

    _legacy_node = staticmethod(_legacy_node)

    def __init__(
        self, program: Program, stream: int, at: int, look_ahead: bool
    ) -> None:
        super().__init__(program, stream, at, look_ahead)
        self.mishaps = Mishaps(stream, program.patience)

    def next(self, alloc: Alloc | None = None) -> Any:
        """The next output, see `TolerantStream.next`."""
        if self._chain is None:
            # What is passed over on the way here counts to outputs before this one.
            self.mishaps.pause()
            self._resume()
        self.mishaps.begin()
        return super().next(alloc)

    def _build(self) -> Node:
        operations = self._program.operations
        alone = _alone(operations)
        passes = not any(map(_ends_with_its_parent, operations[alone:]))
        reader = self._reader()
        chain: Node
        if self._program.on_error == "skip":
            steps = self._extend(reader, 0, alone)
            chain = SkipNode(steps, reader, self.mishaps, passes)
        else:
            chain = SubstituteNode(
                reader,
                self._program,
                self._stream,
                lambda node: self._extend(node, 0, alone),
                self.mishaps,
                passes,
            )
        return self._extend(chain, alone, len(operations))


def _alone(operations: tuple[Any, ...]) -> int:
    """How many of the first operations see one record at a time."""
    for number, op in enumerate(operations):
        if isinstance(op, transforms.Batch) or holds_back(op):
            return number
    return len(operations)


def _ends_with_its_parent(operation: Any) -> bool:
    """Whether a step could not go on, or say where, after its parent has stopped."""
    return holds_back(operation) or isinstance(operation, transforms.FlatMap)
