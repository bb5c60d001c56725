"""Finds out whether workers on a cluster or the network limits, and what may help.

Workers report their times.  If they compute nearly all the time, they limit, and more
of them help.  If they are idle while the consumer waits, they wait for calls, or for
the network to move their outputs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

from gristmill._base.report import Advice, Change, Report, Stage, WorkerLoad
from gristmill._engine.remote import RemoteRun
from gristmill._engine.worker_stats import Usage
from gristmill._observe.diagnosis import KEPT_UP, WORTH

COMPUTING = "what actors compute"
MOVING = "calls of actors, and the network"
NOT_TOLD_APART = (
    "Steps that actors compute are not told apart: the same pipeline as a chain of"
    " datasets does, with"
    " DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING)."
)
# Workers limit if they compute for this part of the time or more.
BUSY = 0.7
# The part of the time for which workers that are needed should compute.
WELL_BUSY = 0.8
# Fewer calls of a worker are too few to judge by.
ENOUGH_CALLS = 4
# Predictions end at this multiple of the number of workers.
FORESEEN = 4
# The time of this process for a call, in addition to the work.
CALL_S = 1e-3
# For a smaller call, the call itself takes most of the time.
LARGE_CALL_BYTES = 1 << 20
# Advice that is certain, and a change that may help.
_Found: TypeAlias = tuple[Advice | None, Change | None]


def usage_of(iterator: Any) -> Usage | None:
    """Return the usage of an iterator's workers on a cluster, or None without any."""
    return next(_usages(iterator), None)


def _usages(iterator: Any) -> Iterator[Usage]:
    run = getattr(iterator, "_run", None)
    usage = run.usage() if isinstance(run, RemoteRun) else None
    if isinstance(usage, Usage) and usage.received and usage.workers:
        yield usage
    for parent in getattr(iterator, "_parents", ()):
        yield from _usages(parent)


def with_usage(report: Report, usage: Usage) -> Report:
    """Add the workers on a cluster to a report, and find out whether they limit.

    Args:
        report: The report without them; stages are kept, if it has any.
        usage: The usage of the workers.
    """
    each = _Each.of(report, usage)
    if not any(stage.kind == "transport" for stage in report.stages):
        report = dataclasses.replace(report, stages=tuple(_stages(usage, each)))
    report = dataclasses.replace(report, workers=tuple(_loads(usage)))
    calls = sum(one.calls for one in usage.workers)
    if not report.outputs or calls < ENOUGH_CALLS * len(usage.workers):
        return report
    stages = sorted(report.stages, key=lambda stage: -stage.share)
    limit, stage = "consumer", None
    found: _Found = _of_consumer(each, len(usage.workers)), None
    if report.waited >= KEPT_UP:
        moves = each.busy < BUSY or each.receiving > each.whole / 2
        stage = next(s for s in stages if (s.kind == "transport") == moves)
        limit = stage.kind
        made = _of_moving if moves else _of_computing
        found = made(each, len(usage.workers))
    advice, untried = found
    return dataclasses.replace(
        report,
        stages=tuple(stages),
        limit=limit,  # type: ignore[arg-type]
        stage=None if stage is None else stage.name,
        advice=() if advice is None else (advice,),
        untried=() if untried is None else (untried,),
    )


@dataclasses.dataclass(frozen=True)
class _Each:
    """The times for an output, in s, its calls, and its size."""

    whole: float
    consumer: float
    computing: float
    moving: float
    receiving: float
    calls: float
    bytes: float
    # The part of their time in which workers compute.
    busy: float

    @classmethod
    def of(cls, report: Report, usage: Usage) -> _Each:
        workers = usage.workers
        made = max(sum(one.outputs for one in workers), 1)
        outputs = max(report.outputs, 1)
        # Nodes after the workers may make one output of several; the report leaves the
        # first output out.
        scale = max(usage.received / (report.outputs + 1), 1.0)
        whole = report.seconds / outputs
        alive = sum(one.alive_s for one in workers)
        return cls(
            whole=whole,
            consumer=whole * (1 - report.waited),
            computing=sum(one.computing_s for one in workers) / made * scale,
            moving=sum(one.moving_s for one in workers) / made * scale,
            receiving=usage.receiving_s / usage.received * scale,
            calls=sum(one.calls for one in workers) / made * scale,
            bytes=sum(one.bytes for one in workers) / made * scale,
            busy=sum(one.busy_s for one in workers) / alive if alive else 0.0,
        )


def _stages(usage: Usage, each: _Each) -> list[Stage]:
    made = sum(one.outputs for one in usage.workers)
    waiting = each.moving + each.receiving
    return [
        Stage(COMPUTING, "transform", each.busy, each.computing, 1.0, made),
        Stage(MOVING, "transport", 1 - each.busy, waiting, 0.0, usage.received),
    ]


def _loads(usage: Usage) -> list[WorkerLoad]:
    return [
        WorkerLoad(
            pid=one.pid,
            busy=min(one.busy_s / one.alive_s, 1.0) if one.alive_s else 0.0,
            sending_s=one.moving_s / max(one.outputs, 1),
            elements=one.outputs,
            node=one.node,
        )
        for one in usage.workers
    ]


def _of_consumer(each: _Each, have: int) -> Advice:
    enough = max(1, math.ceil(have * each.busy / WELL_BUSY))
    text = (
        "The consumer limits: nothing to gain from faster data, so more actors would"
        " not help."
    )
    if enough < have:
        text += f" {enough} of the {have} would do."
    return Advice(text, 1.0)


def _of_computing(each: _Each, have: int) -> _Found:
    """Return the fewest actors with nearly the best prediction."""
    # Answers may come one after the other, if they share the network.
    least = each.consumer + each.moving + each.receiving + each.calls * CALL_S
    counts = range(have, FORESEEN * have + 1)
    gains = [each.whole / max(each.computing / n, least) for n in counts]
    enough = 0.95 * max(gains)
    count, gain = next(
        found for found in zip(counts, gains, strict=True) if found[1] >= enough
    )
    busy = f"Actors compute {each.busy:.0%} of the time"
    if count > have and gain >= WORTH:
        return None, Change(f"{count} actors, not {have}", gain)
    text = (
        f"{busy}, but more of them would not help: to bring what they make here takes"
        f" {least - each.consumer:.2g} s for each output. What it holds has to become"
        " less."
    )
    return Advice(text, 1.0), None


def _of_moving(each: _Each, have: int) -> _Found:
    """Return advice for fewer calls, or for fewer bytes."""
    idle = (
        f"Actors compute {each.busy:.0%} of the time and wait for the rest, so more of"
        " them would not help:"
    )
    call_bytes = each.bytes / each.calls if each.calls else 0.0
    work = each.consumer + max(each.computing / have, each.receiving)
    change = None
    if each.receiving > each.whole / 2:
        what = (
            f"this process takes {each.receiving:.2g} s to make an output of what came."
            " Arrays in place of Python objects are views."
        )
    elif call_bytes < LARGE_CALL_BYTES:
        times = min(64, math.ceil(LARGE_CALL_BYTES / max(call_bytes, 1.0)))
        gain = each.whole / (work + max(each.whole - work, 0.0) / times)
        what = f"a call brings {call_bytes / 1e3:.3g} kB."
        change = Change(f"{times} times as many batches_per_call", gain)
    else:
        what = (
            f"the network brings {each.bytes / 1e6:.3g} MB for each output. Smaller"
            " dtypes make that less. Beyond that it takes consumers on more machines,"
            " each with its shard."
        )
    return Advice(f"{idle} {what}", 1.0), change
