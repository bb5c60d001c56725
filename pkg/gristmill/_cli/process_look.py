"""Takes snapshots of a process's loaders and of its use of CPU and memory."""

from __future__ import annotations

import dataclasses
import time

from gristmill._convert.problem import Problem
from gristmill._observe import processes
from gristmill._observe.processes import Arena, ProcessUsage
from gristmill._observe.shared_words import LayoutMismatchError, Snapshot

NO_WORKERS = (
    "has no loader with workers now. One without workers computes in the process"
    " itself: ask its iterator for report(), or use py-spy."
)


@dataclasses.dataclass(frozen=True)
class Look:
    """A snapshot of a process's loaders, and of its and its workers' resource usage."""

    pid: int
    at_s: float
    loaders: dict[int, tuple[Arena, Snapshot]]
    usage: dict[int, ProcessUsage]


def look_at(pid: int) -> Look:
    """Return a snapshot of a process. Raises Problem if it cannot be observed."""
    used = processes.usage(pid)
    # For a zombie process, other files in /proc may not be readable.
    if used is not None and used.state == "Z":
        raise Problem(f"process {pid} has ended.")
    try:
        loaders = loaders_of(pid)
    except FileNotFoundError:
        raise Problem(f"there is no process {pid}.") from None
    except PermissionError:
        raise Problem(
            f"process {pid} is another user's, or does not let itself be looked at."
        ) from None
    except LayoutMismatchError as other:
        raise Problem(other_layout(pid, f" ({other})")) from None
    except ProcessLookupError:
        raise Problem(f"process {pid} has ended.") from None
    if processes.sees_other_numbers(pid):
        raise Problem(
            f"process {pid} runs in a container with process numbers of its own. Run"
            " gristmill top in there."
        )
    pids = {worker.pid for _, each in loaders.values() for worker in each.workers}
    asked = {each: processes.usage(each) for each in {pid, *pids} if each is not None}
    usage = {each: found for each, found in asked.items() if found is not None}
    if pid not in usage:
        raise Problem(f"process {pid} has ended.")
    return Look(pid, time.monotonic(), loaders, usage)


def loaders_of(pid: int) -> dict[int, tuple[Arena, Snapshot]]:
    """Return the open loaders of a process, by the inode of their shared memory."""
    found = {}
    for arena in processes.arenas(pid):
        snapshot = arena.snapshot()
        if snapshot is None or snapshot.closed:
            continue
        if snapshot.owner != pid and not processes.sees_other_numbers(pid):
            raise Problem(
                f"process {pid} works for another: try gristmill top {snapshot.owner}"
            )
        found[arena.inode] = arena, snapshot
    return found


def without_loaders(pid: int) -> str:
    """Return a message about a process without observable loaders."""
    if processes.has_gristmill(pid):
        return f"process {pid} {NO_WORKERS}"
    return f"process {pid} does not use Gristmill."


def other_layout(pid: int, what: str = "") -> str:
    """Return a message about a process whose shared memory has another layout."""
    return (
        f"process {pid} runs another version of Gristmill{what}. Use the gristmill"
        " command of its environment."
    )
