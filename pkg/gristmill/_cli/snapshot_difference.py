"""Computes the activity of a process's loaders and workers between two snapshots."""

from __future__ import annotations

import dataclasses
from typing import Any

from gristmill._cli.process_snapshot import ProcessSnapshot
from gristmill._observe import processes
from gristmill._observe.processes import ProcessUsage
from gristmill._observe.shared_words import Worker


def activity_between(
    before: ProcessSnapshot, after: ProcessSnapshot, waited: dict[int, tuple[int, int]]
) -> dict[str, Any]:
    """Return a process's activity between two snapshots, as JSON-compatible values."""
    return {
        "pid": after.pid,
        "command": processes.read_command(after.pid),
        "stopped": _is_stopped(after.usage[after.pid]),
        **_cpu_and_memory(after.pid, before, after),
        "loaders": [
            _loader(inode, before, after, waited.get(inode)) for inode in after.loaders
        ],
    }


def _loader(
    inode: int,
    before: ProcessSnapshot,
    after: ProcessSnapshot,
    waited: tuple[int, int] | None,
) -> dict[str, Any]:
    now = after.loaders[inode][1]
    then = before.loaders[inode][1] if inode in before.loaders else None
    passed_s = now.at_s - then.at_s if then else 0.0

    def per_s(new: int, old: int | None) -> float | None:
        return None if old is None or passed_s <= 0 else (new - old) / passed_s

    return {
        "id": inode,
        "face": now.face,
        "streams": now.streams,
        "delivered": now.delivered,
        "delivered_per_s": per_s(now.delivered, then.delivered if then else None),
        "computed": now.computed,
        "computed_per_s": per_s(now.computed, then.computed if then else None),
        "ready": now.ready,
        "waiting": waited[0] / waited[1] if waited else None,
        "samples": waited[1] if waited else 0,
        "memory_bytes": now.arena_bytes,
        "memory_limit": now.memory_limit,
        "workers": [
            {
                **_worker(worker, after),
                **_cpu_and_memory(worker.pid, before, after),
                "outputs_per_s": per_s(
                    worker.outputs,
                    then.workers[worker.number].outputs if then else None,
                ),
            }
            for worker in now.workers
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
    now = None if pid is None else after.usage.get(pid)
    then = None if pid is None else before.usage.get(pid)
    cpu = None
    if now is not None and then is not None:
        cpu = max(0.0, now.cpu_s - then.cpu_s) / (after.at_s - before.at_s)
    return {"cpu": cpu, "pss_bytes": None if now is None else now.pss_bytes}
