"""Adds stages that this process or workers of this machine compute to a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gristmill._base.report import SENDING, Report, Stage, WorkerLoad
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._engine.stage_times import RECEIVE, SEND, StageTime
from gristmill._engine.worker_stats import LocalStats

# (kind, name) in reports of the stages that are not steps.
NAMES = {
    SEND: ("transport", SENDING),
    RECEIVE: ("transport", "taking outputs from workers"),
}
TOO_FEW_OUTPUTS_NOTE = "Too few outputs were computed to measure the stages."


def usage_of(iterator: Any) -> LocalStats | None:
    """Return the usage of an iterator's process or workers, or None without any.

    For a chain, it is the usage of the last node's workers.
    """
    # A loader's iterator may have `usage` itself.
    run = getattr(iterator, "_run", iterator)
    usage = run.usage() if hasattr(run, "usage") else None
    if not isinstance(usage, LocalStats):
        return None
    is_chain = isinstance(iterator, DatasetIterator)
    return None if is_chain and not usage.workers else usage


def auto_notes(iterator: Any) -> list[str]:
    """Return the decisions of "auto" about an iterator's workers, if there are any."""
    auto = getattr(getattr(iterator, "_run", iterator), "_auto", None)
    notes = [] if auto is None else [str(auto)]
    for parent in getattr(iterator, "_parents", ()):
        notes += auto_notes(parent)
    return notes


def with_usage(report: Report, usage: LocalStats, iterator: Any) -> Report:
    """Add the stages and the workers of an iterator to the report of its outputs."""
    workers = usage.workers
    sending_s = usage.stages.get(SEND, StageTime(0.0, 1.0)).seconds
    computing_s = sum(
        time.seconds
        for name, time in usage.stages.items()
        if name not in (SEND, RECEIVE)
    )
    outputs = sum(worker.outputs for worker in workers)
    loads = []
    for worker in workers:
        alive_s = worker.busy_s + worker.idle_s
        busy = min(worker.busy_s / alive_s, 1.0) if alive_s else 0.0
        # `busy_s` includes sending, but a report does not count it as busy.
        total_s = computing_s + sending_s
        busy *= computing_s / total_s if total_s else 1.0
        loads.append(WorkerLoad(worker.pid, busy, sending_s, worker.outputs))
    if outputs:
        output_bytes = sum(worker.bytes for worker in workers) / outputs
        bytes_per_s = report.outputs_per_s * output_bytes
        report = dataclasses.replace(report, bytes_per_s=bytes_per_s)
    # The threads that may read ahead in this process, if there can be any.
    threads = getattr(iterator, "_reading_threads", None)
    stages = tuple(_stages(usage, outputs or report.outputs, threads))
    notes = report.notes if stages else (*report.notes, TOO_FEW_OUTPUTS_NOTE)
    return dataclasses.replace(report, stages=stages, workers=tuple(loads), notes=notes)


def _stages(usage: LocalStats, outputs: int, threads: int | None) -> Iterator[Stage]:
    """Yield the stages with their parts of the time.

    Workers compute and send at the same time; this process alone receives.
    """
    worker_count = max(len(usage.workers), 1)
    seconds_by_stage = {
        name: time.seconds / (1 if name == RECEIVE else worker_count)
        for name, time in usage.stages.items()
    }
    total_s = sum(seconds_by_stage.values())
    for name, time in usage.stages.items():
        names = {**NAMES, **usage.names}
        kind, title = names.get(name, ("transform", name))
        share = seconds_by_stage[name] / total_s if total_s else 0.0
        reads = kind == "read" and not usage.workers
        yield Stage(
            title,
            kind,
            share,
            time.seconds,
            time.cpu_share,
            outputs,
            threads if reads else None,
        )
