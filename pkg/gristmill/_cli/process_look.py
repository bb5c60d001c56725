"""What the loaders of a process, and all that it has used, are at a moment."""

from __future__ import annotations

import dataclasses
import time

from gristmill._convert.problem import Problem
from gristmill._observe import processes
from gristmill._observe.processes import Arena, Usage
from gristmill._observe.shared_words import OtherLayout, Snapshot

NO_WORKERS = (
    "has no loader with workers now. One without workers computes in the process"
    " itself: ask its iterator for report(), or use py-spy."
)


@dataclasses.dataclass(frozen=True)
class Look:
    """A process at a moment: its loaders, and what it and its workers have used."""

    pid: int
    at_s: float
    loaders: dict[int, tuple[Arena, Snapshot]]
    usage: dict[int, Usage]


def look_at(pid: int) -> Look:
    """Look at a process; what cannot be looked at is a `Problem` that says why."""
    used = processes.usage(pid)
    # Of one that has ended and is not waited for, nothing else may be readable.
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
    except OtherLayout as other:
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
    """The loaders of a process that are not closed, by the inode of their memory."""
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
    """What to say of a process in which nothing is to be seen."""
    if processes.has_gristmill(pid):
        return f"process {pid} {NO_WORKERS}"
    return f"process {pid} does not use Gristmill."


def other_layout(pid: int, what: str = "") -> str:
    """What to say of a process whose words are another version's."""
    return (
        f"process {pid} runs another version of Gristmill{what}. Use the gristmill"
        " command of its environment."
    )
