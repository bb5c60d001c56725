"""Tells how long a call has waited: for a network or a disk, say, or for other threads.

What it computes is no waiting, nor what it has native threads compute, as tokenizers
and Arrow do; nor that other processes had the processor.  More threads would help with
none of these.
"""

from __future__ import annotations

import resource
import threading
import time
from typing import NamedTuple


class Clocks(NamedTuple):
    """What the clocks of a thread say.

    Attributes:
        wall_s: The time.
        computed_s: Processor time of this thread and of native ones of the process.
        pauses: How often this thread has given up the processor by itself.
    """

    wall_s: float
    computed_s: float
    pauses: int


def clocks() -> Clocks:
    """What the clocks of this thread say; it takes some microseconds."""
    here = threading.get_ident()
    # Other threads of Python do not work for this one.
    others = sum(
        _thread_s(thread.native_id)
        for thread in threading.enumerate()
        if thread.ident != here
    )
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return Clocks(time.perf_counter(), time.process_time() - others, usage.ru_nvcsw)


def waited_s(since: Clocks, until: Clocks) -> float:
    """How long a thread has waited between two looks at its clocks, in seconds."""
    if until.pauses == since.pauses:
        return 0.0
    computed = until.computed_s - since.computed_s
    return max(0.0, until.wall_s - since.wall_s - computed)


def _thread_s(native_id: int | None) -> float:
    """Processor time of a thread of this process; 0 where it has ended."""
    if native_id is None:
        return 0.0
    try:
        # Linux makes the number of a thread's clock of the thread's.
        return time.clock_gettime((~native_id << 3) | 6)
    except OSError:
        return 0.0
