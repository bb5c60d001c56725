"""Adds the intervals of a recorded run to its report."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

from gristmill._base.report import Report
from gristmill._base.trace import Trace
from gristmill._engine.recording import (
    CONSUME,
    MAX_INTERVALS,
    MAX_PROCESS_INTERVALS,
    NEXT,
    WAIT,
)
from gristmill._observe.local_workers import NAMES

_RUN_NAMES = {
    NEXT: ("wait", "next()"),
    CONSUME: ("consumer", "consume()"),
    WAIT: ("wait", "waiting for work"),
}
TOO_MANY_NOTE = (
    f"The trace has the first {MAX_PROCESS_INTERVALS:,} intervals of each process, and"
    f" {MAX_INTERVALS:,} in total. Pass fewer seconds for a whole trace."
)
REMOTE_NOTE = (
    "The trace has only this process: workers that ranks share, and actors of a"
    " cluster, are not recorded."
)


def with_intervals(
    report: Report,
    trace: Trace,
    names: Mapping[str, tuple[str, str]],
    is_remote: bool,
) -> Report:
    """Add a trace to the report of the same run.

    Args:
        report: The report.
        trace: The trace, in which the stages have the names of `stage_times`.
        names: Kinds and names of stages that are not the user's steps.
        is_remote: Whether a pool computed the outputs.
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
    counts = collections.Counter(interval.process for interval in intervals)
    largest = max(counts.values(), default=0)
    if largest >= MAX_PROCESS_INTERVALS or len(intervals) >= MAX_INTERVALS:
        notes.append(TOO_MANY_NOTE)
    if is_remote:
        notes.append(REMOTE_NOTE)
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
