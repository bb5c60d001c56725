"""Adds stages that this process or workers of this machine compute to a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gristmill._base.report import SENDING, Report, Stage, WorkerLoad
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._engine.stage_times import RECEIVE, SEND, StageTime
from gristmill._engine.worker_stats import LocalStats

NAMES = {
    SEND: ("transport", SENDING),
    RECEIVE: ("transport", "taking outputs from workers"),
}
TOO_FEW_OUTPUTS_NOTE = "Too few outputs were computed to measure the stages."


def usage_of(iterator: Any) -> LocalStats | None:
    """Return the usage of an iterator's process or workers, or None without any.

    For a chain, it is the usage of the last node's workers.
    """
    run = getattr(iterator, "_run", iterator)
    usage = run.usage() if hasattr(run, "usage") else None
    if not isinstance(usage, LocalStats):
        return None
    is_chain = isinstance(iterator, DatasetIterator)
    return None if is_chain and not usage.workers else usage


def with_usage(report: Report, usage: LocalStats, iterator: Any) -> Report:
    """Add the stages and the workers of an iterator to the report of its outputs."""
    workers = usage.workers
    sending = usage.stages.get(SEND, StageTime(0.0, 1.0)).seconds
    computing = sum(
        time.seconds
        for name, time in usage.stages.items()
        if name not in (SEND, RECEIVE)
    )
    outputs = sum(worker.outputs for worker in workers)
    loads = []
    for worker in workers:
        alive = worker.busy_s + worker.idle_s
        busy = min(worker.busy_s / alive, 1.0) if alive else 0.0
        whole = computing + sending
        busy *= computing / whole if whole else 1.0
        loads.append(WorkerLoad(worker.pid, busy, sending, worker.outputs))
    if outputs:
        each = sum(worker.bytes for worker in workers) / outputs
        report = dataclasses.replace(report, bytes_per_s=report.outputs_per_s * each)
    # The threads that may read ahead in this process, if there can be any.
    threads = getattr(iterator, "_reading_threads", None)
    stages = tuple(_stages(usage, outputs or report.outputs, threads))
    notes = report.notes if stages else (*report.notes, TOO_FEW_OUTPUTS_NOTE)
    return dataclasses.replace(report, stages=stages, workers=tuple(loads), notes=notes)


def _stages(usage: LocalStats, outputs: int, threads: int | None) -> Iterator[Stage]:
    """Yield stages with their part of the time; workers run at the same time."""
    worker_count = max(len(usage.workers), 1)
    parts = {
        name: time.seconds / (1 if name == RECEIVE else worker_count)
        for name, time in usage.stages.items()
    }
    whole = sum(parts.values())
    for name, time in usage.stages.items():
        known = {**NAMES, **usage.names}
        kind, text = known.get(name, ("transform", name))
        share = parts[name] / whole if whole else 0.0
        reads = kind == "read" and not usage.workers
        each = (time.seconds, time.cpu_share, outputs, threads if reads else None)
        yield Stage(text, kind, share, *each)
