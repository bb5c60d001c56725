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
from gristmill._engine.worker_stats import RemoteStats
from gristmill._observe.diagnosis import MIN_GAIN, MIN_WAITED

COMPUTING = "computation in actors"
TRANSFER = "calls of actors and the network"
UNMEASURED_STEPS_NOTE = (
    "Steps in actors are not measured separately. To measure them, write the pipeline"
    " as a chain of datasets with"
    " DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING)."
)
# Workers limit if they compute for this part of the time or more.
BUSY = 0.7
# The part of the time for which workers that are needed should compute.
TARGET_BUSY = 0.8
# Fewer calls of a worker are too few to judge by.
MIN_CALLS = 4
# Predictions end at this multiple of the number of workers.
MAX_PREDICTED_FACTOR = 4
# The time of this process for a call, in addition to the work.
CALL_S = 1e-3
# For a smaller call, the call itself takes most of the time.
LARGE_CALL_BYTES = 1 << 20
# Advice that is certain, and a change that may help.
_Advised: TypeAlias = tuple[Advice | None, Change | None]


def usage_of(iterator: Any) -> RemoteStats | None:
    """Return the usage of an iterator's workers on a cluster, or None without any."""
    return next(_find_usages(iterator), None)


def _find_usages(iterator: Any) -> Iterator[RemoteStats]:
    run = getattr(iterator, "_run", None)
    usage = run.usage() if isinstance(run, RemoteRun) else None
    if isinstance(usage, RemoteStats) and usage.received and usage.workers:
        yield usage
    for parent in getattr(iterator, "_parents", ()):
        yield from _find_usages(parent)


def with_usage(report: Report, usage: RemoteStats) -> Report:
    """Add the workers on a cluster to a report, and find out whether they limit.

    Args:
        report: The report without them; stages are kept, if it has any.
        usage: The usage of the workers.
    """
    times = _OutputTimes.of(report, usage)
    if not any(stage.kind == "transport" for stage in report.stages):
        report = dataclasses.replace(report, stages=tuple(_stages(usage, times)))
    report = dataclasses.replace(report, workers=tuple(_loads(usage)))
    calls = sum(one.calls for one in usage.workers)
    if not report.outputs or calls < MIN_CALLS * len(usage.workers):
        return report
    stages = sorted(report.stages, key=lambda stage: -stage.share)
    limit, stage = "consumer", None
    advised: _Advised = _advise_for_consumer(times, len(usage.workers)), None
    if report.waited >= MIN_WAITED:
        moves = times.busy < BUSY or times.receiving > times.whole / 2
        stage = next(s for s in stages if (s.kind == "transport") == moves)
        limit = stage.kind
        advise = _advise_for_transfer if moves else _advise_for_computing
        advised = advise(times, len(usage.workers))
    advice, untried = advised
    return dataclasses.replace(
        report,
        stages=tuple(stages),
        limit=limit,  # type: ignore[arg-type]
        stage=None if stage is None else stage.name,
        advice=() if advice is None else (advice,),
        untried=() if untried is None else (untried,),
    )


@dataclasses.dataclass(frozen=True)
class _OutputTimes:
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
    def of(cls, report: Report, usage: RemoteStats) -> _OutputTimes:
        workers = usage.workers
        advise = max(sum(one.outputs for one in workers), 1)
        outputs = max(report.outputs, 1)
        # Nodes after the workers may make one output of several; the report leaves the
        # first output out.
        scale = max(usage.received / (report.outputs + 1), 1.0)
        whole = report.seconds / outputs
        alive = sum(one.alive_s for one in workers)
        return cls(
            whole=whole,
            consumer=whole * (1 - report.waited),
            computing=sum(one.computing_s for one in workers) / advise * scale,
            moving=sum(one.transfer_s for one in workers) / advise * scale,
            receiving=usage.decode_s / usage.received * scale,
            calls=sum(one.calls for one in workers) / advise * scale,
            bytes=sum(one.bytes for one in workers) / advise * scale,
            busy=sum(one.busy_s for one in workers) / alive if alive else 0.0,
        )


def _stages(usage: RemoteStats, times: _OutputTimes) -> list[Stage]:
    advise = sum(one.outputs for one in usage.workers)
    waiting = times.moving + times.receiving
    return [
        Stage(COMPUTING, "transform", times.busy, times.computing, 1.0, advise),
        Stage(TRANSFER, "transport", 1 - times.busy, waiting, 0.0, usage.received),
    ]


def _loads(usage: RemoteStats) -> list[WorkerLoad]:
    return [
        WorkerLoad(
            pid=one.pid,
            busy=min(one.busy_s / one.alive_s, 1.0) if one.alive_s else 0.0,
            sending_s=one.transfer_s / max(one.outputs, 1),
            elements=one.outputs,
            node=one.node,
        )
        for one in usage.workers
    ]


def _advise_for_consumer(times: _OutputTimes, actors: int) -> Advice:
    enough = max(1, math.ceil(actors * times.busy / TARGET_BUSY))
    text = (
        "The consumer limits the rate: faster data would not help, so more actors would"
        " not help."
    )
    if enough < actors:
        text += f" {enough} of the {actors} would be enough."
    return Advice(text, 1.0)


def _advise_for_computing(times: _OutputTimes, actors: int) -> _Advised:
    """Return the fewest actors with nearly the best prediction."""
    # Answers may come one after the other, if they share the network.
    least = times.consumer + times.moving + times.receiving + times.calls * CALL_S
    counts = range(actors, MAX_PREDICTED_FACTOR * actors + 1)
    gains = [times.whole / max(times.computing / n, least) for n in counts]
    enough = 0.95 * max(gains)
    count, gain = next(
        pair for pair in zip(counts, gains, strict=True) if pair[1] >= enough
    )
    busy = f"Actors compute {times.busy:.0%} of the time"
    if count > actors and gain >= MIN_GAIN:
        return None, Change(f"{count} actors, not {actors}", gain)
    text = (
        f"{busy}, but more of them would not help: the transfer of an output to this"
        f" process takes {least - times.consumer:.2g} s. Make outputs smaller."
    )
    return Advice(text, 1.0), None


def _advise_for_transfer(times: _OutputTimes, actors: int) -> _Advised:
    """Return advice for fewer calls, or for fewer bytes."""
    idle = (
        f"Actors compute {times.busy:.0%} of the time and wait for the rest, so more of"
        " them would not help:"
    )
    call_bytes = times.bytes / times.calls if times.calls else 0.0
    work = times.consumer + max(times.computing / actors, times.receiving)
    change = None
    if times.receiving > times.whole / 2:
        what = (
            f"this process takes {times.receiving:.2g} s to decode an output. Use"
            " arrays instead of Python objects: they are not copied."
        )
    elif call_bytes < LARGE_CALL_BYTES:
        factor = min(64, math.ceil(LARGE_CALL_BYTES / max(call_bytes, 1.0)))
        gain = times.whole / (work + max(times.whole - work, 0.0) / factor)
        what = f"a call returns only {call_bytes / 1e3:.3g} kB."
        change = Change(f"{factor} times as many batches_per_call", gain)
    else:
        what = (
            f"the network transfers {times.bytes / 1e6:.3g} MB for each output. Use"
            " smaller dtypes, or consumers on more machines, each with its shard."
        )
    return Advice(f"{idle} {what}", 1.0), change
