"""Reports the progress of starting actors to the user."""

from __future__ import annotations

import time
from typing import Any

from gristmill._base import log

# Time until the first report, in s.  While no actor has started, reports repeat at this
# interval.  After that, the waiting time doubles from one report to the next.
REPORT_S = 5.0


class StartProgress:
    """Writes a report when one is due.

    It has no lock: threads that call it at the same time can repeat a report.

    Args:
        ray: The module `ray`.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._start_s = time.monotonic()
        self._next_report_s = self._start_s + REPORT_S
        self._wanted = 0
        self._has_reported = False

    def update(self, started: int, wanted: int) -> None:
        """Report how many actors have started, if a report is due."""
        now = time.monotonic()
        if wanted > self._wanted:
            self._start_s, self._next_report_s = now, now + REPORT_S
        self._wanted = wanted
        if started >= wanted:
            if self._has_reported:
                self._has_reported = False
                log.show(
                    f"Ray: all {wanted} actors have started, after"
                    f" {now - self._start_s:.0f} s."
                )
            self._start_s, self._next_report_s = now, now + REPORT_S
        elif now >= self._next_report_s:
            self._report(started, now)

    def _report(self, started: int, now: float) -> None:
        self._has_reported = True
        if started:
            self._next_report_s = now + max(now - self._start_s, REPORT_S)
            log.show(
                f"Ray: {started} of {self._wanted} actors have started, after"
                f" {now - self._start_s:.0f} s."
            )
            return
        self._next_report_s = now + REPORT_S
        free = self._ray.available_resources().get("CPU", 0.0)
        total = self._ray.cluster_resources().get("CPU", 0.0)
        log.warning(
            "Waiting for Ray: none of %d actors has started. The cluster has %g CPUs,"
            " %g of them free; see `ray status`.",
            self._wanted,
            total,
            free,
        )
