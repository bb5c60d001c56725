"""Adds the intervals of a recorded run to its report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from gristmill._base.report import Report
from gristmill._base.trace import Trace
from gristmill._engine.recording import CONSUME, NEXT, WAIT
from gristmill._observe.local_workers import NAMES

_RUN_NAMES = {
    NEXT: ("wait", "next()"),
    CONSUME: ("consumer", "consume()"),
    WAIT: ("wait", "waiting for work"),
}
TOO_MANY_NOTE = (
    "The trace has only the first intervals of a process. Pass fewer seconds to record"
    " all of them."
)
MISSING_NOTE = (
    "The trace has no intervals of some workers. Workers that ranks share, actors of a"
    " cluster, and workers of a forkserver that ran before are not recorded."
)


def with_intervals(
    report: Report,
    trace: Trace,
    names: Mapping[str, tuple[str, str]],
    worker_pids: Iterable[int] | None,
) -> Report:
    """Add a trace to the report of the same run.

    Args:
        report: The report.
        trace: The trace, in which the stages have the names of `stage_times`.
        names: Kinds and names of stages that are not the user's steps.
        worker_pids: The workers of this run; None if a pool computed the outputs.
    """
    all_names = {**NAMES, **_RUN_NAMES, **names}
    titles = {
        stage: _title_of(stage, all_names)
        for stage in {interval.stage for interval in trace.intervals}
    }
    intervals = tuple(
        interval._replace(stage=titles[interval.stage]) for interval in trace.intervals
    )
    notes = list(report.notes)
    if not trace.complete:
        notes.append(TOO_MANY_NOTE)
    if worker_pids is None or not trace.process_names.keys() >= set(worker_pids):
        notes.append(MISSING_NOTE)
    return dataclasses.replace(
        report,
        recorded=dataclasses.replace(trace, intervals=intervals),
        notes=tuple(notes),
    )


def _title_of(stage: str, names: Mapping[str, tuple[str, str]]) -> str:
    """Return the kind and the name of a stage."""
    if stage in names:
        return ": ".join(names[stage])
    # Nodes of a chain have their kind.  Other stages are the user's steps.
    return stage if ": " in stage else f"transform: {stage}"
