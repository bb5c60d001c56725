"""A unit that a pool computes, and its result, as programs and pools exchange them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._engine.stream import Position
from gristmill._pool.call_metrics import ProcessLoad

Bytes = npt.NDArray[np.uint8]


class UnitTask(NamedTuple):
    """A unit as the scheduler published it.

    Any process of the pool may compute it, any number of times.  `str` describes it in
    errors.

    Attributes:
        stream: The number of its stream.
        sequential: True if the unit is the next output after `position_before`.  False
            if it is a range of the stream's records, or the answer to a request.
        first: The first record of the range.
        records: The number of records in the range.
        attempt: The number of workers that ended while they computed it.
        position_before: The position of the stream before a sequential unit; the words
            of a request; else ().
        request: The number of the request that the unit answers; -1 if it does not
            answer one.
    """

    stream: int
    sequential: bool
    first: int
    records: int
    attempt: int
    position_before: Position
    request: int = -1

    @property
    def kind(self) -> _core.UnitKind:
        """The scheduler's kind of the unit."""
        if self.request >= 0:
            return _core.UnitKind.REQUEST
        return _core.UnitKind.SEQUENTIAL if self.sequential else _core.UnitKind.RANGE

    @property
    def owned(self) -> bool:
        """Whether the process that computed the unit before it should compute it."""
        return self.sequential or self.request >= 0

    def __str__(self) -> str:
        if self.owned:
            return f"an output of stream {self.stream}"
        last = self.first + self.records - 1
        return f"records {self.first} to {last} of its stream {self.stream}"


class TaskResult(NamedTuple):
    """The result of a unit.

    Attributes:
        status: One of `_core.STATUS_*`.
        positions: The position after each output, without the failure.
        position: The position after the unit, also that of the failure, if any.
        failure: The packed error that ended the unit after its outputs, or None.
        payload: The outputs, followed by the failure, in the format of a slot.
        load: The computing times of the process.
    """

    status: int
    positions: list[Position]
    position: Position
    failure: bytes | None
    payload: Bytes
    load: ProcessLoad
