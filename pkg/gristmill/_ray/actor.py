"""The code of an actor: a worker that computes one unit per call.

It computes units like a worker process (`gristmill._engine.worker`), but writes them
into its own memory.  Ray's object store transfers them to the caller.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._engine import worker
from gristmill._engine.stream import Position, Runnable
from gristmill._engine.unit_result import UnitResult
from gristmill._hot import slot_writer
from gristmill._ray.metrics import ActorLoad
from gristmill._workers import nesting, settings
from gristmill.sources._share import share_among

Bytes = npt.NDArray[np.uint8]

# The size of the memory for a unit at first.
INITIAL_BYTES = 64 << 10


class UnitTask(NamedTuple):
    """A unit as the scheduler published it.

    Any actor may compute it, any number of times.  `str` describes it in errors.

    Attributes:
        stream: The number of its stream.
        sequential: True if the unit is the next output after `position_before`.  False
            if it is a range of the stream's records.
        first: The first record of the range.
        records: The number of records in the range.
        attempt: The number of workers that ended while they computed it.
        position_before: The position of the stream before a sequential unit, else ().
    """

    stream: int
    sequential: bool
    first: int
    records: int
    attempt: int
    position_before: Position

    def __str__(self) -> str:
        if self.sequential:
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
        load: The computing times of the actor.
    """

    status: int
    positions: list[Position]
    position: Position
    failure: bytes | None
    payload: Bytes
    load: ActorLoad


class ActorLocation(NamedTuple):
    """The node, the node's address and the process id of an actor."""

    node: str
    address: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on node {self.address} ({self.node[:8]})"


class WorkerActor:
    """Computes units of one program or of several.

    `actor_pool.py` makes it a Ray actor.  Ray runs the calls of an actor one at a time.

    Args:
        packed: The program for calls of `compute`, as written by
            `gristmill._engine.packing.pack`.  None if all calls name their program.
        process_settings: The settings of the program's process; empty if calls name
            programs.
        number: The number of this actor in its pool.
        actors: The number of actors that read at the same time.
    """

    def __init__(
        self,
        packed: Bytes | None,
        process_settings: Sequence[settings.Setting],
        number: int,
        actors: int,
    ) -> None:
        nesting.become_worker()
        settings.adopt(process_settings)
        _core.keep_freed_memory()
        # Each actor may have an equal part of the requests in flight to a remote host.
        share_among(actors)
        self._number = number
        self._actors = actors
        # The server of `packed`.
        self._own_server = None if packed is None else self._load_program(packed)
        # The servers of the programs that calls of `compute_of` name.
        self._servers: dict[str, _Server] = {}

    def location(self) -> ActorLocation:
        """Return the node and the process of this actor."""
        import ray

        context = ray.get_runtime_context()
        address = ray.util.get_node_ip_address()
        return ActorLocation(context.get_node_id(), address, os.getpid())

    def compute(self, *task: Any) -> TaskResult:
        """Compute a unit of the actor's own program.

        Args:
            task: The fields of a `UnitTask`.
        """
        assert self._own_server is not None
        return self._own_server.answer(UnitTask(*task))

    def compute_of(
        self, name: str, packed: tuple[Any], *task: Any
    ) -> tuple[str, TaskResult | None]:
        """Compute a unit of the program `name`.

        The results are separate objects in Ray's store, so that a caller can read the
        error without fetching the answer.

        Args:
            name: The name of the program.
            packed: The reference of the packed program in Ray's store.
            task: The fields of `UnitTask`.

        Returns:
            The traceback if the program cannot be loaded, else "", and the answer.
        """
        import ray

        if name not in self._servers:
            try:
                self._servers[name] = self._load_program(ray.get(packed[0]))
            except Exception:
                return traceback.format_exc(), None
        return "", self._servers[name].answer(UnitTask(*task))

    def drop_program(self, name: str) -> None:
        """Drop the program `name`, if it is loaded."""
        if server := self._servers.pop(name, None):
            server.close()

    def _load_program(self, packed: Bytes) -> _Server:
        # `worker.load` reads a program from a file.
        fd = os.memfd_create("gristmill-program", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(packed.data)
            with nesting.importing():
                program = worker.load(fd)
        finally:
            os.close(fd)
        slot = _Slot(program.position_capacity)
        return _Server(program, slot, self._number, self._actors)


class _Slot:
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
        self.request_larger_slot(INITIAL_BYTES)

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

    def __init__(self, task: UnitTask, slot: _Slot, continues_stream: bool) -> None:
        sequential, range_ = _core.UnitKind.SEQUENTIAL, _core.UnitKind.RANGE
        self.kind = sequential if task.sequential else range_
        self.stream = task.stream
        self.first, self.count = task.first, task.records
        self.attempt = task.attempt
        self.continues_stream = continues_stream
        self.position_before = np.array(task.position_before, np.int64)
        self.address, self.capacity = slot.request_larger_slot(0), slot.capacity


class _Server(worker.Server):
    """Computes the units of one program, and returns them instead of sending them."""

    # A call returns one answer.
    _IN_PARTS = False

    def __init__(
        self, program: Runnable, slot: _Slot, number: int, actors: int
    ) -> None:
        end: Any = slot
        super().__init__(program, end, number, actors)
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

    def _measure(self, start_s: float) -> ActorLoad:
        """Return the actor's load after a call that began at `start_s`."""
        now = time.perf_counter()
        if self._first_call_s is None:
            self._first_call_s = start_s
        self._busy_s += now - start_s
        return ActorLoad(now - start_s, self._busy_s, now - self._first_call_s)

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
