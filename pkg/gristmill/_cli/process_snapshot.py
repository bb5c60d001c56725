"""Takes snapshots of a process's loaders and of its use of CPU and memory."""

from __future__ import annotations

import dataclasses
import time

from gristmill._convert.errors import CommandError
from gristmill._observe import processes
from gristmill._observe.processes import Arena, ProcessUsage
from gristmill._observe.shared_words import LayoutMismatchError, Snapshot

NO_WORKERS = (
    "has no loader with workers now. A loader without workers computes in the process"
    " itself: call report() of its iterator, or use py-spy."
)


@dataclasses.dataclass(frozen=True)
class ProcessSnapshot:
    """A snapshot of a process's loaders, and of its and its workers' resource usage."""

    pid: int
    at_s: float
    loaders: dict[int, tuple[Arena, Snapshot]]
    usage: dict[int, ProcessUsage]


def take_snapshot(pid: int) -> ProcessSnapshot:
    """Return a snapshot of a process; raise CommandError if it cannot be read."""
    used = processes.read_usage(pid)
    # For a zombie process, other files in /proc may not be readable.
    if used is not None and used.state == "Z":
        raise CommandError(f"process {pid} has ended.")
    try:
        loaders = loaders_of(pid)
    except FileNotFoundError:
        raise CommandError(f"there is no process {pid}.") from None
    except PermissionError:
        raise CommandError(
            f"process {pid} cannot be read. Run gristmill top as the user of the"
            " process."
        ) from None
    except LayoutMismatchError as other:
        raise CommandError(other_layout_text(pid, f" ({other})")) from None
    except ProcessLookupError:
        raise CommandError(f"process {pid} has ended.") from None
    if processes.has_other_pid_namespace(pid):
        raise CommandError(
            f"process {pid} runs in a container with its own process ids. Run"
            " gristmill top in the container."
        )
    pids = {worker.pid for _, each in loaders.values() for worker in each.workers}
    usages = {one: processes.read_usage(one) for one in {pid, *pids} if one is not None}
    usage = {one: used for one, used in usages.items() if used is not None}
    if pid not in usage:
        raise CommandError(f"process {pid} has ended.")
    return ProcessSnapshot(pid, time.monotonic(), loaders, usage)


def loaders_of(pid: int) -> dict[int, tuple[Arena, Snapshot]]:
    """Return the open loaders of a process, by the inode of their shared memory."""
    found = {}
    for arena in processes.find_arenas(pid):
        snapshot = arena.snapshot()
        if snapshot is None or snapshot.closed:
            continue
        if snapshot.owner != pid and not processes.has_other_pid_namespace(pid):
            raise CommandError(
                f"process {pid} is a worker. Run gristmill top {snapshot.owner} for the"
                " process that started it."
            )
        found[arena.inode] = arena, snapshot
    return found


def no_loaders_text(pid: int) -> str:
    """Return a message about a process without observable loaders."""
    if processes.has_gristmill(pid):
        return f"process {pid} {NO_WORKERS}"
    return f"process {pid} does not use Gristmill."


def other_layout_text(pid: int, what: str = "") -> str:
    """Return a message about a process whose shared memory has another layout."""
    return (
        f"process {pid} runs another version of Gristmill{what}. Use the gristmill"
        " command of its environment."
    )
