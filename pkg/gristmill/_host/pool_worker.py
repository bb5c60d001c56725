"""A worker of a pool: computes one unit at a time, in the memory of the pool."""

from __future__ import annotations

import os
import pickle
import socket
import time
import traceback

import numpy as np

from gristmill import _core
from gristmill._engine import failures, packing
from gristmill._engine.stream import Runnable
from gristmill._engine.worker import ANYWHERE
from gristmill._host import messages
from gristmill._host.programs import complete
from gristmill._host.slot_views import PoolMemory
from gristmill._host.unit_packets import pack_result
from gristmill._pool.call_metrics import ProcessLoad
from gristmill._pool.unit_server import Slot, UnitServer
from gristmill._pool.unit_task import Bytes, TaskResult, UnitTask
from gristmill.errors import ArenaFull
from gristmill.sources._share import share_among

NO_BYTES = np.empty(0, np.uint8)


def serve(
    base: Runnable,
    server: socket.socket,
    arena: tuple[int, int],
    number: int,
    workers: int,
) -> None:
    """Compute units until the server closes its end.

    Args:
        base: The program of the rank that started the pool.
        server: The socket to the server.
        arena: The descriptor and the size of the pool's memory.
        number: The number of this worker.
        workers: The number of workers.
    """
    _core.keep_freed_memory()
    # Each worker may have an equal part of the requests in flight to a remote host.
    share_among(workers)
    packing.reopen_files()
    memory = PoolMemory(*arena, private=False)
    unit_servers: dict[str, UnitServer] = {}
    slots: dict[str, PoolSlot] = {}
    load_failures: dict[str, str] = {}
    while received := messages.receive(server):
        (kind, program, *details), _ = received
        if kind == "program":
            try:
                runnable = complete(base, details[0])
                slot = PoolSlot(server, memory, runnable.position_capacity)
                slots[program] = slot
                unit_servers[program] = UnitServer(runnable, slot, number, workers)
            except Exception:
                load_failures[program] = traceback.format_exc()
        elif kind == "drop":
            if unit_server := unit_servers.pop(program, None):
                unit_server.close()
            slots.pop(program, None)
        elif program in load_failures:
            messages.try_send(server, ("failed", load_failures[program]))
        else:
            task, unit, offset, capacity = details
            slot = slots[program]
            slot.use(offset, capacity)
            result = _answer(unit_servers[program], UnitTask(*task), number)
            ready_s = time.perf_counter()
            packet = pack_result(result, unit, slot.offset, os.getpid(), ready_s)
            # Without a server, the next `receive` ends the loop.
            messages.try_send(server, ("done", len(result.payload), packet))
    for unit_server in unit_servers.values():
        unit_server.close()


def _answer(server: UnitServer, task: UnitTask, number: int) -> TaskResult:
    """Compute a unit; if memory runs out, the next request repeats it."""
    try:
        return server.answer(task)
    except MemoryError as error:
        failure = failures.pack_failure(error, number)
        if server.tolerant:
            failure = pickle.dumps((failure, None), 5)
        before = task.position_before if task.sequential else (task.first,)
        if task.request >= 0:
            before = ANYWHERE
        load = ProcessLoad(0.0, 0.0, 0.0)
        return TaskResult(_core.STATUS_ERROR, [], before, failure, NO_BYTES, load)


class PoolSlot(Slot):
    """A slot whose memory belongs to the pool."""

    def __init__(
        self, server: socket.socket, memory: PoolMemory, position_capacity: int
    ) -> None:
        super().__init__(position_capacity)
        self._server = server
        self._pool_memory = memory
        self.offset = 0

    def use(self, offset: int, capacity: int) -> None:
        """Use a slot of the pool for the next unit."""
        self.offset, self.capacity = offset, capacity

    def request_larger_slot(self, nbytes: int) -> int:
        """Exchange the slot for one of at least this size; return its address.

        Raises:
            OSError: The server is gone.
        """
        if nbytes > self.capacity:
            messages.send(self._server, ("larger", nbytes))
            received = messages.receive(self._server)
            if received is None:
                raise ConnectionResetError("The server of the pool has ended.")
            _, offset, self.capacity = received[0]
            if offset < 0:
                raise ArenaFull(
                    f"An output needs {nbytes} bytes of shared memory, more than the"
                    " pool has left. Use smaller batches, or keep fewer."
                )
            self.offset = offset
        return self._pool_memory.address(self.offset)

    def committed_bytes(self) -> Bytes:
        return self._pool_memory.bytes_at(self.offset, self.committed[2])
