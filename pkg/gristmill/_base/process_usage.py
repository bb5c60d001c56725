"""Reads the processor time and the memory of a process from the kernel."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessUsage(NamedTuple):
    """The processor time and the memory of a process.

    Attributes:
        state: The kernel's letter: R, S, D, T (stopped), Z (ended).
        cpu_s: The processor time of all threads.
        pss_bytes: The proportional set size, or the resident set size if the kernel
            does not show the former.
    """

    state: str
    cpu_s: float
    pss_bytes: int


def read_usage(pid: int) -> ProcessUsage | None:
    """Return the usage of a process, or None if it has ended."""
    fields = _read_stat(pid)
    if fields is None:
        return None
    pss_bytes = int(fields[21]) * _PAGE_BYTES
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                pss_bytes = int(line.split()[1]) * 1024
    return ProcessUsage(fields[0], _cpu_s(fields), pss_bytes)


def read_runnable_s(pid: int) -> float:
    """Return the time that a process computed, or waited for a core to compute.

    The latter counts for the main thread only.  Returns 0 if the process has ended.
    """
    fields = _read_stat(pid)
    if fields is None:
        return 0.0
    queued_ns = 0
    # The kernel may lack this file.
    with contextlib.suppress(OSError, LookupError, ValueError):
        queued_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return _cpu_s(fields) + queued_ns / 1e9


def _read_stat(pid: int) -> list[str] | None:
    """Return the fields of proc(5) from the state on, or None.

    Fields 11 and 12 are the user and system time in ticks, 21 is the resident set in
    pages.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _cpu_s(fields: list[str]) -> float:
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
