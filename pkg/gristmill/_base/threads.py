"""How many threads may compute in this process."""

from __future__ import annotations

import os
import sys


def threads_to_compute(wanted: int = sys.maxsize) -> int:
    """How many threads compute where `wanted` may: no more than there are cores.

    One in a worker, whose cores are for the other workers, too.
    """
    # Not imported to find out.
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        return 1
    return max(1, min(wanted, len(os.sched_getaffinity(0))))
