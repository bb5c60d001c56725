"""The processor cores and the memory that this process may use.

The control groups of a container may allow less than the machine has.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
# Version 1 reports a limit of this size or more for unlimited memory.
_NO_LIMIT = 1 << 60


def count_cores() -> float:
    """Return the number of cores that this process may use, maybe not whole."""
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    else:
        cores = float(os.cpu_count() or 1)
    for group in _groups("cpu"):
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if not period:
            quota = _read(group / "cpu.cfs_quota_us")
            period = _read(group / "cpu.cfs_period_us")
        # An unlimited quota is "max" in version 2, and -1 in version 1.
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            cores = min(cores, int(quota) / int(period))
    return cores


def available_memory() -> int:
    """Return the number of bytes that processes may take without swapping."""
    available = _NO_LIMIT
    for line in _read(_PROC / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) << 10
    for group in _groups("memory"):
        names = ("memory.max", "memory.current", "inactive_file")
        if not (group / names[0]).exists():
            names = (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            )
        limit, used = (_read(group / name) for name in names[:2])
        if limit.isdecimal() and used.isdecimal() and int(limit) < _NO_LIMIT:
            cache = 0  # Pages of files, which the kernel drops when it needs memory.
            for line in _read(group / "memory.stat").splitlines():
                if line.startswith(f"{names[2]} "):
                    cache = int(line.split()[1])
            available = min(available, max(0, int(limit) - int(used) + cache))
    return available


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and of those around it."""
    for line in _read(_PROC / "self/cgroup").splitlines():
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        if not controllers:
            root = _CGROUPS
        elif controller in controllers.split(","):
            root = _CGROUPS / controller
        else:
            continue
        # In a container, its own group may be the root, whatever the path is.
        group = root / path.lstrip("/")
        yield root
        while group != root and root in group.parents:
            yield group
            group = group.parent


def _read(path: Path) -> str:
    """Return the stripped text of a file, or "" if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return path.read_text().strip()
    return ""
