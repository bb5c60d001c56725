"""Measures how long a call was blocked on I/O or on other threads.

Time does not count as waiting if the call computes, if native threads compute for it
(such as those of tokenizers and Arrow), or if other processes occupy the processor.
More threads would not reduce that time.
"""

from __future__ import annotations

import resource
import threading
import time
from typing import NamedTuple

# If native threads compute for more than this share of a call's idle time, the call
# waits for them.  The share is low because on a busy machine they do not get more.
HELPERS_SHARE = 0.1


class Clocks(NamedTuple):
    """The readings of a thread's clocks; all times are in seconds.

    Attributes:
        wall_s: The wall-clock time.
        own_s: Processor time of this thread.
        helpers_s: Processor time of the native threads of the process.
        pauses: The number of voluntary context switches of this thread.
        process_s: Processor time of the process.
    """

    wall_s: float
    own_s: float
    helpers_s: float
    pauses: int
    process_s: float = 0.0


def clocks() -> Clocks:
    """Read the clocks of the calling thread, which takes some microseconds."""
    this_thread = threading.get_ident()
    # Other Python threads do not compute for this one.
    other_python_threads_s = sum(
        _thread_s(thread.native_id)
        for thread in threading.enumerate()
        if thread.ident != this_thread
    )
    own_s = time.thread_time()
    pauses = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    process_s = time.process_time()
    helpers_s = process_s - own_s - other_python_threads_s
    return Clocks(time.perf_counter(), own_s, helpers_s, pauses, process_s)


def waited_s(since: Clocks, until: Clocks) -> float:
    """Return the time that a thread waited between two readings, in seconds."""
    wall_s, own_s, helpers_s, pauses, _ = (
        after - before for after, before in zip(until, since, strict=True)
    )
    idle_s = max(0.0, wall_s - own_s)
    if not pauses or helpers_s > HELPERS_SHARE * idle_s:
        return 0.0
    return idle_s


def _thread_s(native_id: int | None) -> float:
    """Return the processor time of a thread of this process; 0 if it has ended."""
    if native_id is None:
        return 0.0
    try:
        # Linux derives the id of a thread's clock from the id of the thread.
        return time.clock_gettime((~native_id << 3) | 6)
    except OSError:
        return 0.0
