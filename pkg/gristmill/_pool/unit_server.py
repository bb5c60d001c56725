"""Computes units for callers that are not the scheduler of this process.

It computes units like a worker process (`gristmill._engine.worker`), but returns each
result to the caller, which sends it.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

import numpy as np

from gristmill._engine import worker
from gristmill._engine.stream import Position, Runnable
from gristmill._engine.unit_result import UnitResult
from gristmill._hot import slot_writer
from gristmill._pool.call_metrics import ProcessLoad
from gristmill._pool.unit_task import Bytes, TaskResult, UnitTask

# The size of the memory for a unit at first.
INITIAL_BYTES = 64 << 10


class Slot:
    """The memory that a unit is written to; takes the place of a `_core.WorkerEnd`."""

    # The size of an answer is not limited.
    max_unit_bytes = sys.maxsize

    def __init__(self, position_capacity: int) -> None:
        self.position_capacity = position_capacity
        self._record = ctypes.c_int64(-1)
        # A stream stores the number of its current record at this address.
        self.current_record_address = ctypes.addressof(self._record)
        self.capacity = 0
        # The arguments of the last `commit`.
        self.committed: tuple[int, int, int, Position] = (0, 0, 0, ())

    def request_larger_slot(self, nbytes: int) -> int:
        """Make the memory at least this large and return its address.

        Discards the contents if the memory has to grow.
        """
        if nbytes > self.capacity:
            self._memory = np.empty(nbytes + worker.ALIGNMENT, np.uint8)
            self._skip = -self._memory.ctypes.data % worker.ALIGNMENT
            self.capacity = nbytes
        return int(self._memory.ctypes.data) + self._skip

    def commit(self, status: int, outputs: int, used: int, position: Position) -> None:
        self.committed = status, outputs, used, position

    def committed_bytes(self) -> Bytes:
        """Return a view of the committed bytes; the next unit overwrites them."""
        used = self.committed[2]
        return self._memory[self._skip : self._skip + used]


class _Unit:
    """A task with the interface of `_core.Work`."""

    def __init__(self, task: UnitTask, slot: Slot, continues_stream: bool) -> None:
        self.kind = task.kind
        self.stream = task.stream
        self.first, self.count = task.first, task.records
        self.attempt = task.attempt
        self.continues_stream = continues_stream
        self.position_before = np.array(task.position_before, np.int64)
        self.address = slot.request_larger_slot(INITIAL_BYTES)
        self.capacity = slot.capacity


class UnitServer(worker.Server):
    """Computes the units of one program, and returns them instead of sending them."""

    # A call returns one answer.
    _IN_PARTS = False

    def __init__(
        self, program: Runnable, slot: Slot, number: int, workers: int
    ) -> None:
        end: Any = slot
        super().__init__(program, end, number, workers)
        self._slot = slot
        # The positions and the failure of the unit that was written last.
        self._positions: list[Position] = []
        self._failure: bytes | None = None
        # The time of the first call, by `time.perf_counter`; None before it.
        self._first_call_s: float | None = None
        self._busy_s = 0.0

    def answer(self, task: UnitTask) -> TaskResult:
        """Compute a unit; the payload of the result is valid until the next call."""
        start_s = time.perf_counter()
        continues_stream = self.stands_at(task.stream, task.position_before)
        unit: Any = _Unit(task, self._slot, continues_stream)
        self.compute(unit)
        status, outputs, _, position = self._slot.committed
        # The slot counts the failure as an output, but it is not in `positions`.
        positions = self._positions[: outputs - (self._failure is not None)]
        payload = self._slot.committed_bytes()
        load = self._measure(start_s)
        return TaskResult(status, positions, position, self._failure, payload, load)

    def close(self) -> None:
        """Stop reading ahead."""
        for stream in self._streams.values():
            stream.close()

    def _measure(self, start_s: float) -> ProcessLoad:
        """Return this process's load after a call that began at `start_s`."""
        now = time.perf_counter()
        if self._first_call_s is None:
            self._first_call_s = start_s
        self._busy_s += now - start_s
        return ProcessLoad(now - start_s, self._busy_s, now - self._first_call_s)

    def _write(
        self,
        writer: slot_writer.SlotWriter,
        result: UnitResult,
        memory: Bytes | None = None,
    ) -> tuple[int, int] | None:
        # Before the base class empties `outputs`.  If it has to cut them, it calls this
        # method again.
        self._positions = [position for _, _, position in result.outputs]
        written = super()._write(writer, result, memory)
        self._failure = result.failure
        return written
