"""Runs a chain over `Record` objects, for steps that only make sense on them.

Flat-maps, legacy operations (callables over an iterator of records) and random steps
after a batch use a record's metadata and its generator, so these are kept with every
element here.  All other chains run in `NativeStream`.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill import transforms
from gristmill._base import log
from gristmill._base.object_repr import value_text
from gristmill._base.types import Alloc
from gristmill._engine.block_queue import open_reading
from gristmill._engine.program import Program, holds_back, is_group, is_legacy
from gristmill._engine.record_errors import RecordErrors
from gristmill._engine.record_nodes import BatchNode, LegacyNode, Node, ReadNode
from gristmill._engine.record_steps import DRAWING, StepsNode, TolerantStepsNode
from gristmill._engine.stream import NO_KEYS, Position
from gristmill._engine.stream_keys import StreamKeys


class RecordStream:
    """A chain over records.  See `stream.Stream`.

    Its position is the number of records read, then for each flat-map the number of
    splits already returned of the current record.  If a legacy operation holds back
    records, the position at which the operations were created follows, and then the
    number of outputs since.  A seek runs the operations again from there.
    """

    def __init__(
        self, program: Program, stream: int, record_address: int, look_ahead: bool
    ) -> None:
        self.keys = NO_KEYS
        self.position: Position = (0,) * program.position_capacity
        limit = program.errors_per_output
        self.record_errors = RecordErrors(stream, program.on_error, limit)
        self._program = program
        self._record_address = record_address
        self._stream_keys = StreamKeys(program, stream)
        self._reading = open_reading(program, self._stream_keys, look_ahead)
        # The last node of the chain; None until the chain is built after a seek.
        self._chain: Node | None = None
        # If a legacy operation holds back records: the number of outputs since the
        # operations were created, and the position at which they were.
        self._output_count = 0
        self._creation_position: Position = ()

    def seek(self, position: Position) -> None:
        if position[0] != self.position[0]:
            self._reading.forget()
        self.position = position
        self._chain = None

    def next(self, alloc: Alloc | None = None) -> Any:
        # `alloc` is not used here: NumPy allocates the arrays of batches.
        chain = self._chain
        if chain is None:
            # Bad records on the way to this position count for earlier outputs.
            self.record_errors.lift_limit()
            chain = self._resume()
        self.record_errors.begin()
        try:
            record = next(chain)
        except Exception:
            self.position = self._position_after(chain)
            raise
        except BaseException:
            self._chain = None
            raise
        self._output_count += 1
        self.position = self._position_after(chain)
        self.keys = np.array(chain.keys, np.int64)
        return record.data

    def start_prefetch(self) -> None:
        self._reading.start(self.position[0])

    def close(self) -> None:
        """Stop reading ahead; drop the chain and the records that it holds back."""
        self._reading.close()
        self._chain = None

    def _position_after(self, chain: Node) -> Position:
        replay = (
            (*self._creation_position, self._output_count)
            if self._program.opaque
            else ()
        )
        return chain.state() + replay

    def _resume(self) -> Node:
        """Build the chain at the stream's position; return its last node."""
        chain = self._build()
        if self._program.opaque:
            *creation_position, outputs = self.position[1 + self._program.flat_maps :]
            self._creation_position = tuple(creation_position)
            self._output_count = outputs
            chain.seek(self._creation_position)
            if outputs:
                legacy_operations = filter(is_legacy, self._program.operations)
                _warn_once(", ".join(map(value_text, legacy_operations)))
            deque(itertools.islice(chain, outputs), maxlen=0)
        else:
            chain.seek(self.position)
        self._chain = chain
        return chain

    def _build(self) -> Node:
        """Build a new chain; return its last node.

        Steps are cut at each batch, and at each legacy operation that holds back
        records.  Only the steps before the first cut can be tolerant, because they see
        single records.
        """
        program, errors = self._program, self.record_errors
        operations = program.operations
        keys, address = self._stream_keys, self._record_address
        reader = ReadNode(program, keys, address, self._reading)
        steps, remaining = _split_at_group(operations)
        chain: Node = reader
        if program.tolerant:
            # Operations that hold back records, and later flat-maps, cannot continue
            # after their parent has raised StopIteration.
            passes_turn = not any(
                holds_back(op) or isinstance(op, transforms.FlatMap) for op in remaining
            )
            chain = TolerantStepsNode(reader, steps, program, errors, passes_turn)
        elif steps:
            chain = StepsNode(reader, steps)
        while remaining:
            group, *later = remaining
            if isinstance(group, transforms.Batch):
                has_splits = any(isinstance(op, transforms.FlatMap) for op in steps)
                draws_later = any(isinstance(op, DRAWING) for op in later)
                own_generator = has_splits and draws_later
                chain = BatchNode(chain, group, program.rules, own_generator)
            else:
                number = len(operations) - len(remaining)
                chain = LegacyNode(chain, group, number, _attributes_used_by(later))
            steps, remaining = _split_at_group(later)
            if steps:
                chain = StepsNode(chain, steps)
        return chain


def _split_at_group(operations: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the operations before the first group, and the other operations."""
    for number, op in enumerate(operations):
        if is_group(op):
            return operations[:number], operations[number:]
    return operations, ()


def _attributes_used_by(later: Sequence[Any]) -> Sequence[str]:
    """Return the attributes of records that operations after a legacy one use."""
    steps = list(itertools.takewhile(lambda op: not holds_back(op), later))
    if later and not steps:
        return ()  # The next operation takes any objects.
    filters = all(isinstance(op, transforms.Filter) for op in steps)
    return ("data",) if filters else ("data", "metadata")


@functools.cache
def _warn_once(names: str) -> None:
    log.warning(
        "%s holds back records that no state describes: after a resume, everything "
        "since it was created is computed again. Use a Map, Filter or Batch instead.",
        names,
    )
