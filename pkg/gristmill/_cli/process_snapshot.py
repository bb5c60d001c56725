"""Takes snapshots of a process's loaders and of its use of CPU and memory."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

from gristmill._base.publication import read_facts
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
    """A snapshot of a process's loaders, and of its and its workers' resource usage.

    Attributes:
        pid: The process.
        at_s: The time of the snapshot, by `time.monotonic`.
        loaders: The open loaders, by the inode of their shared memory.
        usage: The usage of the process and of each worker that is alive, by process id.
        sources: What each iterator had delivered from its sources when it was counted.
        auto_workers: The last decision for each iterator with "auto" workers.
    """

    pid: int
    at_s: float
    loaders: dict[int, tuple[Arena, Snapshot]]
    usage: dict[int, ProcessUsage]
    sources: list[dict[str, Any]]
    auto_workers: list[dict[str, Any]]


def take_snapshot(pid: int) -> ProcessSnapshot:
    """Return a snapshot of a process; raise CommandError if it cannot be read."""
    own_usage = processes.read_usage(pid)
    # For a zombie process, other files in /proc may not be readable.
    if own_usage is not None and own_usage.state == "Z":
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
    except LayoutMismatchError as error:
        raise CommandError(other_layout_text(pid, f" ({error})")) from None
    except ProcessLookupError:
        raise CommandError(f"process {pid} has ended.") from None
    if processes.has_other_pid_namespace(pid):
        raise CommandError(
            f"process {pid} runs in a container with its own process ids. Run"
            " gristmill top in the container."
        )
    usage = {}
    for each in {pid, *_worker_pids(loaders)}:
        if (process_usage := processes.read_usage(each)) is not None:
            usage[each] = process_usage
    if pid not in usage:
        raise CommandError(f"process {pid} has ended.")
    sources, decisions = read_facts(pid, "counts"), read_facts(pid, "auto_workers")
    return ProcessSnapshot(pid, time.monotonic(), loaders, usage, sources, decisions)


def _worker_pids(loaders: dict[int, tuple[Arena, Snapshot]]) -> Iterator[int]:
    for _, snapshot in loaders.values():
        for worker in snapshot.workers:
            if worker.pid is not None:
                yield worker.pid


def loaders_of(pid: int) -> dict[int, tuple[Arena, Snapshot]]:
    """Return the open loaders of a process, by the inode of their shared memory."""
    loaders = {}
    for arena in processes.find_arenas(pid):
        snapshot = arena.snapshot()
        if snapshot is None or snapshot.closed:
            continue
        if snapshot.owner != pid and not processes.has_other_pid_namespace(pid):
            raise CommandError(
                f"process {pid} is a worker. Run gristmill top {snapshot.owner} for the"
                " process that started it."
            )
        loaders[arena.inode] = arena, snapshot
    return loaders


def no_loaders_text(pid: int) -> str:
    """Return a message about a process without observable loaders."""
    if processes.has_gristmill(pid):
        return f"process {pid} {NO_WORKERS}"
    return f"process {pid} does not use Gristmill."


def other_layout_text(pid: int, details: str = "") -> str:
    """Return a message about a process whose shared memory has another layout."""
    return (
        f"process {pid} runs another version of Gristmill{details}. Use the gristmill"
        " command of its environment."
    )
