"""Reads the memory that a loader shares with its workers, from another process.

`csrc/core/memory/control.hpp` defines the structures and their offsets.  The loader
does not wait for a reader, so fields may be of different moments.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

import numpy as np
import numpy.typing as npt

LAYOUT = 1
_MARK = b"grstml"
# The states of a unit in `csrc/core/memory/unit_word.hpp`, and those of them in which a
# worker holds it.
_FREE, _LEASED, _NEED, _GRANTED, _COMMITTED, _PART = range(1, 7)
_HELD = (_LEASED, _NEED, _GRANTED, _PART)
# The kinds of units.
_RANGE, _REQUEST = 0, 2
# Other files may begin like a loader's memory; larger numbers show that.
_MAX_WORKERS, _MAX_UNITS = 4094, 1 << 23


def _structure(size: int, **fields: tuple[int, str]) -> np.dtype[np.void]:
    """Return a dtype of `size` bytes; each field is (offset in bytes, format)."""
    offsets, formats = zip(*fields.values(), strict=True)
    return np.dtype(
        {
            "names": list(fields),
            "formats": list(formats),
            "offsets": list(offsets),
            "itemsize": size,
        }
    )


CONTROL = _structure(
    320,
    owner=(8, "<u4"),
    kind=(12, "<u4"),
    memory_limit=(16, "<u8"),
    workers=(24, "<u4"),
    units=(28, "<u4"),
    streams=(32, "<u4"),
    waiting_for=(192, "<u8"),
    delivered=(256, "<u8"),
)
CELL = _structure(
    10176,
    admitted=(0, "<u4"),
    stop=(4, "<u4"),
    pid=(8, "<u4"),
    asleep=(64, "<u4"),
    started=(68, "<u4"),
    current_record=(72, "<i8"),
    # Fields of its Counts.
    claimed_ns=(8064, "<i8"),
    outputs=(8088, "<i8"),
)
UNIT = _structure(
    128,
    word=(0, "<u8"),
    stream=(8, "<u4"),
    first=(16, "<i8"),
    count=(24, "<i8"),
    outputs=(68, "<u4"),
)


class LayoutMismatchError(Exception):
    """The loader's version of Gristmill shares other structures."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """A unit of work that a worker computes.

    Attributes:
        first: The first record of a range of `count`, or None if the unit is the next
            output of its stream, or a request.
        record: The current record, as the worker counts them, or None if it does not.
        seconds: The time since the worker began the unit.
    """

    stream: int
    first: int | None
    count: int | None
    record: int | None
    seconds: float


@dataclasses.dataclass(frozen=True)
class Worker:
    """A worker as it was at a moment.

    Attributes:
        pid: None if there is no process, or none that may compute yet.
        state: "starting", "computing", "waiting for room" or "waiting for work".
        outputs: The number of outputs, with those of the processes that it replaced.
        restarts: The number of processes that it replaced.
    """

    number: int
    pid: int | None
    state: str
    unit: Unit | None
    outputs: int
    restarts: int


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A loader as it was at a moment.

    Attributes:
        at_s: The moment, by the monotonic clock.
        owner: The process that iterates.
        face: "grain" or "torch".
        delivered: The number of outputs that the consumer has taken.
        ready: The number of outputs of computed units that are not wholly taken.
        arena_bytes: The memory of its outputs, in bytes.
        memory_limit: The most memory that outputs may have, in bytes.
        closed: Whether its workers have to end.
    """

    at_s: float
    owner: int
    face: str
    streams: int
    delivered: int
    ready: int
    arena_bytes: int
    memory_limit: int
    closed: bool
    workers: tuple[Worker, ...]

    @property
    def computed(self) -> int:
        """The number of outputs that workers have computed."""
        return sum(worker.outputs for worker in self.workers)


def is_consumer_waiting(fd: int) -> bool:
    """Return whether the consumer sleeps until an output comes."""
    control = _control(fd)
    return control is not None and bool(control["waiting_for"])


def snapshot(fd: int) -> Snapshot | None:
    """Return the loader of a file of shared memory, or None for any other file.

    Raises:
        LayoutMismatchError: The loader is of another version.
        OSError: The file cannot be read.
    """
    control = _control(fd)
    if control is None:
        return None
    count, units = int(control["workers"]), int(control["units"])
    if not (0 < count <= _MAX_WORKERS and 0 < units <= _MAX_UNITS):
        return None
    cells_offset = CONTROL.itemsize
    cells = _read(fd, CELL, count, cells_offset)
    table = _read(fd, UNIT, units, cells_offset + count * CELL.itemsize)
    if cells is None or table is None:
        return None
    now_s = time.monotonic()
    kind = int(control["kind"])
    # See `UnitWord` in unit_word.hpp.  A holder is a worker's number plus 1.
    states = table["word"] >> 12 & 0xF
    ready = table["outputs"][states == _COMMITTED].sum()
    unit_by_holder = {}
    for unit in table[np.isin(states, _HELD)]:
        unit_by_holder[int(unit["word"]) & 0xFFF] = unit
    workers = [
        _worker(number, cell, unit_by_holder.get(number + 1), kind, now_s)
        for number, cell in enumerate(cells)
    ]
    return Snapshot(
        now_s,
        int(control["owner"]),
        "torch" if kind == _REQUEST else "grain",
        int(control["streams"]),
        int(control["delivered"]),
        int(ready),
        os.fstat(fd).st_blocks * 512,
        int(control["memory_limit"]),
        bool(cells["stop"][0]),  # All workers are stopped together.
        tuple(workers),
    )


def _control(fd: int) -> Any:
    """Return the fields at the beginning, or None for any other file."""
    mark = os.pread(fd, 8, 0)
    if mark[2:] != _MARK:
        return None
    layout = int.from_bytes(mark[:2], "little")
    if layout != LAYOUT:
        raise LayoutMismatchError(
            f"shared memory must have layout {LAYOUT}, got {layout}"
        )
    controls = _read(fd, CONTROL, 1, 0)
    return None if controls is None else controls[0]


def _read(
    fd: int, structure: np.dtype[np.void], count: int, offset: int
) -> npt.NDArray[np.void] | None:
    """Return `count` structures of a file, or None if it is too short."""
    data = os.pread(fd, count * structure.itemsize, offset)
    if len(data) < count * structure.itemsize:
        return None
    return np.frombuffer(data, structure)


def _worker(number: int, cell: Any, unit: Any, kind: int, now_s: float) -> Worker:
    """Return a worker.

    Args:
        number: The worker's number.
        cell: The worker's structure `CELL`.
        unit: The structure `UNIT` that the worker holds, or None.
        kind: The kind of the loader's units.
        now_s: The present, by the monotonic clock.
    """
    admitted, started = int(cell["admitted"]), int(cell["started"])
    current_unit = None
    if admitted == 0 or started != admitted:
        state = "starting"
    elif unit is None:
        state = "waiting for work"
    else:
        waits_for_memory = int(unit["word"]) >> 12 & 0xF == _NEED
        state = "waiting for room" if waits_for_memory else "computing"
        is_range = kind == _RANGE
        current_record = int(cell["current_record"])
        claimed_ns = int(cell["claimed_ns"])
        current_unit = Unit(
            int(unit["stream"]),
            int(unit["first"]) if is_range else None,
            int(unit["count"]) if is_range else None,
            current_record if current_record >= 0 else None,
            max(0.0, now_s - claimed_ns / 1e9) if claimed_ns else 0.0,
        )
    # These are generations, counted from 1.  Between the loss of a process and the
    # admission of the next one, `admitted` is 0.
    restarts = max(0, admitted - 1 if admitted else started)
    return Worker(
        number,
        int(cell["pid"]) or None,
        state,
        current_unit,
        int(cell["outputs"]),
        restarts,
    )
