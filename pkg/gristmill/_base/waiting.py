"""Tells how long a call has waited: for a network or a disk, say, or for other threads.

What it computes is no waiting, nor is it where native threads compute for it, as those
of tokenizers and Arrow do, nor where other processes had the processor.  More threads
would help with none of these.
"""

from __future__ import annotations

import resource
import threading
import time
from typing import NamedTuple

# Native threads that compute for this part of a call's idle time are what it waits for:
# on a busy machine they get no more.
HELPERS_SHARE = 0.1


class Clocks(NamedTuple):
    """What the clocks of a thread say.

    Attributes:
        wall_s: The time.
        own_s: Processor time of this thread.
        helpers_s: Processor time of the native threads of the process.
        pauses: How often this thread has given up the processor by itself.
        process_s: Processor time of the process.
    """

    wall_s: float
    own_s: float
    helpers_s: float
    pauses: int
    process_s: float = 0.0


def clocks() -> Clocks:
    """What the clocks of this thread say; it takes some microseconds."""
    here = threading.get_ident()
    # Other threads of Python do not work for this one.
    others_s = sum(
        _thread_s(thread.native_id)
        for thread in threading.enumerate()
        if thread.ident != here
    )
    own_s = time.thread_time()
    pauses = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    process_s = time.process_time()
    helpers_s = process_s - own_s - others_s
    return Clocks(time.perf_counter(), own_s, helpers_s, pauses, process_s)


def waited_s(since: Clocks, until: Clocks) -> float:
    """How long a thread has waited between two looks at its clocks, in seconds."""
    wall_s, own_s, helpers_s, pauses, _ = (
        after - before for after, before in zip(until, since, strict=True)
    )
    idle_s = max(0.0, wall_s - own_s)
    if not pauses or helpers_s > HELPERS_SHARE * idle_s:
        return 0.0
    return idle_s


def _thread_s(native_id: int | None) -> float:
    """Processor time of a thread of this process; 0 where it has ended."""
    if native_id is None:
        return 0.0
    try:
        # Linux makes the number of a thread's clock of the thread's.
        return time.clock_gettime((~native_id << 3) | 6)
    except OSError:
        return 0.0
