"""Shows on a terminal or in a notebook that workers start, if that takes long."""

from __future__ import annotations

import time

from gristmill import _core
from gristmill._base import progress_bar

# Nothing is shown for this time.  Then the line is updated after each step.
QUIET_S = 1.0
STEP_S = 0.2


def wait_for_first(scheduler: _core.Scheduler, timeout_s: float) -> _core.NextResult:
    """Return the first result of `scheduler.next(timeout_s)`.

    Until a worker process runs, a line on a terminal or in a notebook shows the time
    so far.  A negative timeout waits forever.
    """
    if 0 <= timeout_s <= QUIET_S or not progress_bar.is_watched():
        return scheduler.next(timeout_s)
    start_s = time.monotonic()
    line = progress_bar.Line()
    result = scheduler.next(QUIET_S)
    try:
        while result.kind == "timeout":
            processes = scheduler.processes()
            elapsed_s = time.monotonic() - start_s
            remaining_s = timeout_s - elapsed_s
            # Once a process runs, a short timeout would count as a stall of a worker.
            if any(alive for _, alive, _ in processes) or 0 <= timeout_s < elapsed_s:
                break
            workers = "1 worker" if len(processes) == 1 else f"{len(processes)} workers"
            line.show(f"Starting {workers}: {elapsed_s:.0f} s")
            result = scheduler.next(
                STEP_S if timeout_s < 0 else min(STEP_S, remaining_s)
            )
        else:
            return result
    finally:
        line.clear()
    return scheduler.next(timeout_s if timeout_s < 0 else max(0.0, remaining_s))
