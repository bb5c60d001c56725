"""Computes the activity of a process's loaders and workers between two snapshots."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from gristmill._cli.process_snapshot import ProcessSnapshot
from gristmill._observe import processes
from gristmill._observe.processes import ProcessUsage
from gristmill._observe.shared_words import Worker


class WaitSamples(NamedTuple):
    """The number of samples in which a consumer was waiting, and of all samples."""

    waiting: int
    total: int


def activity_between(
    before: ProcessSnapshot,
    after: ProcessSnapshot,
    wait_samples: dict[int, WaitSamples],
) -> dict[str, Any]:
    """Return a process's activity between two snapshots, as JSON-compatible values.

    The names of the fields are public: `top --json` prints them.
    """
    return {
        "pid": after.pid,
        "command": processes.read_command(after.pid),
        "stopped": _is_stopped(after.usage[after.pid]),
        **_cpu_and_memory(after.pid, before, after),
        "loaders": [
            _loader(inode, before, after, wait_samples.get(inode))
            for inode in after.loaders
        ],
        "sources": after.sources,
        "auto_workers": after.auto_workers,
    }


def _loader(
    inode: int,
    before: ProcessSnapshot,
    after: ProcessSnapshot,
    samples: WaitSamples | None,
) -> dict[str, Any]:
    """Return the activity of one loader, which may not be in `before`."""
    latest = after.loaders[inode][1]
    earlier = before.loaders[inode][1] if inode in before.loaders else None
    elapsed_s = latest.at_s - earlier.at_s if earlier else 0.0

    def per_s(new: int, old: int | None) -> float | None:
        return None if old is None or elapsed_s <= 0 else (new - old) / elapsed_s

    return {
        "id": inode,
        "face": latest.face,
        "streams": latest.streams,
        "delivered": latest.delivered,
        "delivered_per_s": per_s(
            latest.delivered, earlier.delivered if earlier else None
        ),
        "computed": latest.computed,
        "computed_per_s": per_s(latest.computed, earlier.computed if earlier else None),
        "ready": latest.ready,
        "waiting": samples.waiting / samples.total if samples else None,
        "samples": samples.total if samples else 0,
        "memory_bytes": latest.arena_bytes,
        "memory_limit": latest.memory_limit,
        "workers": [
            {
                **_worker(worker, after),
                **_cpu_and_memory(worker.pid, before, after),
                "outputs_per_s": per_s(
                    worker.outputs,
                    earlier.workers[worker.number].outputs if earlier else None,
                ),
            }
            for worker in latest.workers
        ],
    }


def _worker(worker: Worker, snapshot: ProcessSnapshot) -> dict[str, Any]:
    state = worker.state
    usage = None if worker.pid is None else snapshot.usage.get(worker.pid)
    if worker.pid is not None and (usage is None or usage.state == "Z"):
        state = "ended"
    elif usage is not None and _is_stopped(usage):
        state = "stopped"
    unit = worker.unit
    return {
        "worker": worker.number,
        "pid": worker.pid,
        "state": state,
        "unit": unit and dataclasses.asdict(unit),
        "outputs": worker.outputs,
        "restarts": worker.restarts,
    }


def _is_stopped(usage: ProcessUsage) -> bool:
    """Return whether a signal or a debugger has stopped the process."""
    return usage.state in "Tt"


def _cpu_and_memory(
    pid: int | None, before: ProcessSnapshot, after: ProcessSnapshot
) -> dict[str, Any]:
    """Return a process's CPU share between two snapshots, and its memory in bytes."""
    latest = None if pid is None else after.usage.get(pid)
    earlier = None if pid is None else before.usage.get(pid)
    cpu = None
    if latest is not None and earlier is not None:
        cpu = max(0.0, latest.cpu_s - earlier.cpu_s) / (after.at_s - before.at_s)
    return {"cpu": cpu, "pss_bytes": None if latest is None else latest.pss_bytes}
