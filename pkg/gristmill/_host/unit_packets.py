"""Requests of lanes and results of units, as packets; see core/schedule/pool_lane.hpp.

A worker makes the packet of a result.  The server forwards it, and a lane commits it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from gristmill._engine.stream import NO_KEYS
from gristmill._hot import slot_writer
from gristmill._pool.call_metrics import ProcessLoad
from gristmill._pool.unit_task import TaskResult, UnitTask

# The first word of a result, and `ResultHeader`.
_RESULT = ord("C")
_HEADER = struct.Struct("5q")
# The fields of `ResultDetails`.
_DETAILS = struct.Struct("5q4d")
_INITIAL_BYTES = 16 << 10


class ResultDetails(NamedTuple):
    """The part of a result that a rank reads in Python.

    Attributes:
        unit: The number of the unit in the pool.
        offset: The offset of its payload in the pool's memory.
        used: The size of the payload; 0 if the pool lacked memory.
        pid: The process that computed it.
        outputs: The number of outputs, without a failure.
        ready_s: The time at which it was ready, by `time.perf_counter`.
        load: The computing times of the process.
    """

    unit: int
    offset: int
    used: int
    pid: int
    outputs: int
    ready_s: float
    load: ProcessLoad


def unpack_task(packet: bytes) -> UnitTask:
    """Return the task of a request."""
    words = struct.unpack(f"{len(packet) // 8}q", packet)
    stream, sequential, first, records, attempt, request = words[:6]
    return UnitTask(
        stream, bool(sequential), first, records, attempt, words[6:], request
    )


def pack_task(task: UnitTask) -> bytes:
    """Return the request for a task."""
    *before_position, position, request = task
    words = *before_position, request, *position
    return struct.pack(f"{len(words)}q", *words)


def pack_result(
    result: TaskResult, unit: int, offset: int, pid: int, ready_s: float
) -> bytes:
    """Return the packet of a unit whose payload is in the pool's memory.

    See `ResultDetails` for the arguments.
    """
    # In the slots of ranks, each element is twice the unit's number, plus 1 for the
    # last output.
    outputs = [(2 * unit, NO_KEYS, position) for position in result.positions]
    if outputs:
        outputs[-1] = 2 * unit + 1, *outputs[-1][1:]
    failure = None if result.failure is None else (result.failure, result.position)
    nbytes = _INITIAL_BYTES
    while True:
        slot = np.empty(nbytes, np.uint8)
        writer = slot_writer.SlotWriter(slot.ctypes.data, nbytes)
        try:
            slot_bytes = slot_writer.encode(writer, outputs, failure)
            break
        except slot_writer.SlotTooSmallError as need:
            nbytes = need.bytes
    position = result.position
    details = unit, offset, len(result.payload), pid, len(outputs), ready_s
    return b"".join(
        (
            _HEADER.pack(
                _RESULT,
                result.status,
                len(outputs) + (failure is not None),
                len(position),
                slot_bytes,
            ),
            struct.pack(f"{len(position)}q", *position),
            slot[:slot_bytes].tobytes(),
            _DETAILS.pack(*details, *result.load),
        )
    )


def unpack_details(details: bytes) -> ResultDetails:
    """Return the last part of a result."""
    fields = _DETAILS.unpack(details)
    return ResultDetails._make((*fields[:6], ProcessLoad._make(fields[6:])))
