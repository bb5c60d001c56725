"""Finds out whether the workers of a pool or their calls limit, and what may help.

Workers are actors of a cluster, or processes that the ranks of this host share.  They
report their times.  If they compute nearly all the time, they limit, and more of them
help.  If they are idle while the consumer waits, they wait for calls, or for the
network to move their outputs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

from gristmill._base.report import Advice, Change, Report, Stage, WorkerLoad
from gristmill._engine.worker_stats import RemoteStats
from gristmill._observe.diagnosis import MIN_GAIN, MIN_WAITED

# Workers limit if they compute for this part of the time or more.
BUSY_SHARE = 0.7
# The part of the time for which workers that are needed should compute.
TARGET_BUSY_SHARE = 0.8
# Fewer calls of a worker are too few to judge by.
MIN_CALLS_PER_WORKER = 4
# Predictions end at this multiple of the number of workers.
MAX_PREDICTED_FACTOR = 4
# The time of this process for a call, in addition to the work.
CALL_OVERHEAD_S = 1e-3
# For a smaller call, the call itself takes most of the time.
LARGE_CALL_BYTES = 1 << 20
# (advice that is certain, change that may help)
_Advised: TypeAlias = tuple[Advice | None, Change | None]


def usage_of(iterator: Any) -> RemoteStats | None:
    """Return the usage of the workers of an iterator's pool, or None without any."""
    return next(_find_usages(iterator), None)


def unmeasured_steps_note(usage: RemoteStats) -> str:
    """Return a note about steps that are not measured, and how to measure them."""
    note = f"Steps in {usage.workers_text} are not measured separately."
    if usage.workers_text == "workers":
        return f"{note} To measure them, call report() of the loader without share."
    return (
        f"{note} To measure them, write the pipeline as a chain of datasets with"
        " DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING)."
    )


def _find_usages(iterator: Any) -> Iterator[RemoteStats]:
    # A torch loader's iterator has `usage` itself.
    run = getattr(iterator, "_run", iterator)
    usage = run.usage() if hasattr(run, "usage") else None
    if isinstance(usage, RemoteStats) and usage.received and usage.workers:
        yield usage
    for parent in getattr(iterator, "_parents", ()):
        yield from _find_usages(parent)


def with_usage(report: Report, usage: RemoteStats) -> Report:
    """Add the workers of a pool to a report, and find out whether they limit.

    Args:
        report: The report without them; stages in actors are kept, if it has any.
        usage: The usage of the workers.
    """
    times = _OutputTimes.of(report, usage)
    is_measured = any(stage.kind == "transport" for stage in report.stages)
    if usage.workers_text == "workers" or not is_measured:
        report = dataclasses.replace(report, stages=tuple(_make_stages(usage, times)))
    report = dataclasses.replace(report, workers=tuple(_make_loads(usage)))
    calls = sum(worker.calls for worker in usage.workers)
    if not report.outputs or calls < MIN_CALLS_PER_WORKER * len(usage.workers):
        return report
    stages = sorted(report.stages, key=lambda stage: -stage.share)
    limit, stage = "consumer", None
    advised: _Advised = _advise_for_consumer(times, usage), None
    if report.waited >= MIN_WAITED:
        is_transfer_bound = (
            times.busy_share < BUSY_SHARE or times.decode_s > times.whole_s / 2
        )
        stage = next(s for s in stages if (s.kind == "transport") == is_transfer_bound)
        limit = stage.kind
        advise = _advise_for_transfer if is_transfer_bound else _advise_for_computing
        advised = advise(times, usage)
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
    """The mean times for an output, its calls, and its size.

    Attributes:
        whole_s: The time from one output to the next.
        consumer_s: The consumer's part of it.
        computing_s: The time in which a worker computes the output.
        transfer_s: The time for calls and the network.
        decode_s: The time in which this process decodes the output.
        calls: The number of calls of workers.
        bytes: The size, in bytes.
        busy_share: The part of their time in which workers compute, from 0 to 1.
    """

    whole_s: float
    consumer_s: float
    computing_s: float
    transfer_s: float
    decode_s: float
    calls: float
    bytes: float
    busy_share: float

    @classmethod
    def of(cls, report: Report, usage: RemoteStats) -> _OutputTimes:
        workers = usage.workers
        computed = max(sum(worker.outputs for worker in workers), 1)
        outputs = max(report.outputs, 1)
        # Nodes after the workers may make one output of several.  The report excludes
        # the first output.
        scale = max(usage.received / (report.outputs + 1), 1.0)
        whole_s = report.seconds / outputs
        alive_s = sum(worker.alive_s for worker in workers)
        return cls(
            whole_s=whole_s,
            consumer_s=whole_s * (1 - report.waited),
            computing_s=sum(worker.computing_s for worker in workers)
            / computed
            * scale,
            transfer_s=sum(worker.transfer_s for worker in workers) / computed * scale,
            decode_s=usage.decode_s / usage.received * scale,
            calls=sum(worker.calls for worker in workers) / computed * scale,
            bytes=sum(worker.bytes for worker in workers) / computed * scale,
            busy_share=sum(worker.busy_s for worker in workers) / alive_s
            if alive_s
            else 0.0,
        )


def _make_stages(usage: RemoteStats, times: _OutputTimes) -> list[Stage]:
    computed = sum(worker.outputs for worker in usage.workers)
    transfer_s = times.transfer_s + times.decode_s
    calls = f"calls of {usage.workers_text}"
    return [
        Stage(
            f"computation in {usage.workers_text}",
            "transform",
            times.busy_share,
            times.computing_s,
            1.0,
            computed,
        ),
        Stage(
            f"{calls} and the network" if usage.workers_text == "actors" else calls,
            "transport",
            1 - times.busy_share,
            transfer_s,
            0.0,
            usage.received,
        ),
    ]


def _make_loads(usage: RemoteStats) -> list[WorkerLoad]:
    return [
        WorkerLoad(
            pid=worker.pid,
            busy=min(worker.busy_s / worker.alive_s, 1.0) if worker.alive_s else 0.0,
            sending_s=worker.transfer_s / max(worker.outputs, 1),
            elements=worker.outputs,
            node=worker.node,
        )
        for worker in usage.workers
    ]


def _advise_for_consumer(times: _OutputTimes, usage: RemoteStats) -> Advice:
    """Advise fewer workers if the consumer limits."""
    workers = len(usage.workers)
    needed = max(1, math.ceil(workers * times.busy_share / TARGET_BUSY_SHARE))
    text = (
        "The consumer limits the rate: faster data would not help, so more"
        f" {usage.workers_text} would not help."
    )
    if needed < workers:
        text += f" {needed} of the {workers} would be enough."
    return Advice(text, 1.0)


def _advise_for_computing(times: _OutputTimes, usage: RemoteStats) -> _Advised:
    """Advise the fewest workers with nearly the best prediction."""
    workers = len(usage.workers)
    # Results may arrive one after the other, if they share the network.
    min_s = (
        times.consumer_s
        + times.transfer_s
        + times.decode_s
        + times.calls * CALL_OVERHEAD_S
    )
    counts = range(workers, MAX_PREDICTED_FACTOR * workers + 1)
    gains = [times.whole_s / max(times.computing_s / n, min_s) for n in counts]
    sufficient_gain = 0.95 * max(gains)  # Of the fewest workers to advise.
    count, gain = next(
        pair for pair in zip(counts, gains, strict=True) if pair[1] >= sufficient_gain
    )
    if count > workers and gain >= MIN_GAIN:
        return None, Change(f"{count} {usage.workers_text}, not {workers}", gain)
    text = (
        f"{usage.workers_text.capitalize()} compute {times.busy_share:.0%} of the time,"
        " but more of them would not help: the transfer of an output to this process"
        f" takes {min_s - times.consumer_s:.2g} s. Make outputs smaller."
    )
    return Advice(text, 1.0), None


def _advise_for_transfer(times: _OutputTimes, usage: RemoteStats) -> _Advised:
    """Advise fewer calls, at most 64 times fewer, or fewer bytes."""
    idle = (
        f"{usage.workers_text.capitalize()} compute {times.busy_share:.0%} of the time"
        " and wait for the rest, so more of them would not help:"
    )
    call_bytes = times.bytes / times.calls if times.calls else 0.0
    computing_s = times.computing_s / len(usage.workers)
    work_s = times.consumer_s + max(computing_s, times.decode_s)
    change = None
    if times.decode_s > times.whole_s / 2:
        cause = (
            f"this process takes {times.decode_s:.2g} s to decode an output. Use"
            " arrays instead of Python objects: they are not copied."
        )
    elif usage.workers_text == "workers":
        cause = (
            f"a call returns {call_bytes / 1e3:.3g} kB. If they do not wait for another"
            " rank, use larger batches, or give each rank a loader without workers."
        )
    elif call_bytes < LARGE_CALL_BYTES:
        factor = min(64, math.ceil(LARGE_CALL_BYTES / max(call_bytes, 1.0)))
        gain = times.whole_s / (work_s + max(times.whole_s - work_s, 0.0) / factor)
        cause = f"a call returns only {call_bytes / 1e3:.3g} kB."
        change = Change(f"{factor} times as many batches_per_call", gain)
    else:
        cause = (
            f"the network transfers {times.bytes / 1e6:.3g} MB for each output. Use"
            " smaller dtypes, or consumers on more machines, each with its shard."
        )
    return Advice(f"{idle} {cause}", 1.0), change
