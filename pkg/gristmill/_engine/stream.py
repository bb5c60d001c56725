"""What computes the outputs of one stream, one after another, in any process."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.record_errors import RecordErrors

Vector = tuple[int, ...]
NO_KEYS: Int64Array = np.empty(0, np.int64)


class Stream(Protocol):
    """What computes a stream.

    Attributes:
        vector: Position after the last output; what a checkpoint stores.
        keys: Record keys that the last output was made of, shape (k,).
        record_errors: Bad records passed over since the output before the last.
    """

    vector: Vector
    keys: Int64Array
    record_errors: RecordErrors

    def seek(self, vector: Vector) -> None:
        """Make the next output the one that follows position `vector`."""

    def next(self, alloc: Alloc | None = None) -> Any:
        """The next output; its arrays come from `alloc` where they can.

        Raises:
            StopIteration: The stream has ended, or met many bad records and nothing
                else: then there are record errors, and it goes on behind them.
            GiveUp: It met more bad records than one output may.
            Exception: What the user's code raised; the records of this output up
                to the failing one count as consumed, and `vector` says so.
        """

    def start_prefetch(self) -> None:
        """Begin to read ahead."""

    def close(self) -> None:
        """Stop reading ahead."""


class AnsweringStream(Protocol):
    """In the place of a `Stream`: its outputs are what its caller asks for."""

    def answer(self, request: Int64Array, alloc: Alloc) -> Any:
        """The output that a request asks for, see `_core.Scheduler.ask`."""

    def leave_slot(self) -> None:
        """Let go of the memory that `alloc` gave; the output is written."""


@runtime_checkable
class CarefulStream(Protocol):
    """A stream that may compute more than its next output needs."""

    def be_careful(self) -> None:
        """Compute nothing that the next output does not need."""
