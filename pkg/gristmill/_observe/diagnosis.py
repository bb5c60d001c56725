"""Finds out which stage limits, from what was measured, and what would help."""

from __future__ import annotations

import dataclasses
import os

from gristmill._observe.report import SENDING, Advice, Limit, Report, Stage

# A consumer that waits less than this part of the time is the one that limits.
KEPT_UP = 0.1
# No stage stands out where the second one has at least so much of what the first one
# has; less is enough where the first one has not half of all.
CLOSE = 0.65
NEAR = 0.4
WORTH = 1.1
# To move an output from a worker: a call, and its bytes once.
CALL_S = 50e-6
BYTES_PER_S = 4e9
MANY_THREADS = 32
MANY_WORKERS = 16
MOSTLY = 0.5


def diagnose(report: Report) -> Report:
    """Add to what was measured of a run what it means."""
    stages = tuple(sorted(report.stages, key=lambda stage: -stage.share))
    report = dataclasses.replace(report, stages=stages)
    limit, stage = _limit(report)
    return dataclasses.replace(
        report,
        limit=limit,
        stage=None if stage is None else stage.name,
        advice=tuple(_advice(report, limit, stage)),
    )


def predicted_gain(report: Report, workers: int) -> float:
    """How many times as many outputs a second so many workers should give."""
    waited, consumer = _each(report)
    work = _working_s(report) if report.workers else max(waited, _alone_s(report))
    # Workers share the processors, and wait side by side.
    part = max(1 / workers, _computing(report) / _cores())
    return (waited + consumer) / max(work * part, _rest(report))


def ready_gain(report: Report) -> float | None:
    """As `predicted_gain`, if outputs were ready; None where nothing would be left.

    At least 1: what came from a buffer may have come faster than that.
    """
    waited, consumer = _each(report)
    rest = _rest(report) if report.workers else consumer
    if not report.workers and rest <= CALL_S:
        return None
    return max(1.0, (waited + consumer) / rest)


def _alone_s(report: Report) -> float:
    """What one thread would take for an output that several now read side by side."""
    return sum(stage.seconds for stage in report.stages if stage.kind != "prefetch")


def _computing(report: Report) -> float:
    """The part of the stages' time in which they compute rather than wait."""
    taken = sum(stage.seconds for stage in report.stages)
    computed = sum(stage.seconds * stage.cpu_share for stage in report.stages)
    return computed / taken if taken else 1.0


def _rest(report: Report) -> float:
    """What is left of an output that workers compute: using it, and moving it."""
    _, consumer = _each(report)
    return consumer + CALL_S + _bytes_each(report) / BYTES_PER_S


def _each(report: Report) -> tuple[float, float]:
    """How long an output is waited for, and how long its consumer is away, in s."""
    whole = report.seconds / report.outputs
    return whole * report.waited, whole * (1 - report.waited)


def _working_s(report: Report) -> float:
    """What computing an output takes of the workers' time, all added up."""
    busy = sum(worker.busy for worker in report.workers)
    return busy * report.seconds / report.outputs


def _moving_s(report: Report) -> float:
    """What moving an output takes of the workers' common time, and of ours."""
    sending = sum(worker.sending_s for worker in report.workers)
    receiving = sum(
        stage.seconds * stage.cpu_share
        for stage in report.stages
        if stage.kind == "transport" and stage.name != SENDING
    )
    return sending / len(report.workers) ** 2 + receiving


def _limit(report: Report) -> tuple[Limit, Stage | None]:
    """What limits, and the stage that does."""
    if not report.outputs:
        return "unknown", None
    if report.waited < KEPT_UP:
        return "consumer", None
    transport = [stage for stage in report.stages if stage.kind == "transport"]
    if (
        transport
        and report.workers
        and _moving_s(report) > _working_s(report) / len(report.workers)
    ):
        return "transport", transport[0]
    working = [stage for stage in report.stages if stage.kind != "transport"]
    if not working:
        return "unknown", None
    top = working[0]
    second = working[1].share if len(working) > 1 else 0.0
    if second >= (CLOSE if top.share > MOSTLY else NEAR) * top.share:
        return "balanced", None
    kind: Limit = top.kind  # type: ignore[assignment]
    return kind, top


def _advice(report: Report, limit: Limit, stage: Stage | None) -> list[Advice]:
    """What to change, the best first."""
    if limit == "unknown":
        return []
    if limit == "consumer":
        text = "The consumer limits: nothing to gain from faster data."
        return [Advice(text, 1.0)]
    if limit == "transport":
        found = _of_transport(report)
    elif report.workers:
        found = _of_workers(report, stage)
    else:
        found = _of_waiting(report, stage)
        if not _threads_wait(stage):
            found += _of_workers(report, stage)
    found = [advice for advice in found if advice.gain >= WORTH]
    if not found:
        what = "What the stages do" if stage is None else f"What {stage.name} does"
        text = (
            f"{what} has to become cheaper: neither threads nor more worker processes"
            f" would give more on this machine's {_cores()} cores."
        )
        found = [Advice(text, 1.0)]
    return sorted(found, key=lambda advice: -advice.gain)


def _of_workers(report: Report, stage: Stage | None) -> list[Advice]:
    """The fewest worker processes that give nearly the most, if more than there are."""
    have = len(report.workers)
    counts = range(1, _useful_workers(report, stage) + 1)
    gains = [predicted_gain(report, count) for count in counts]
    enough = 0.95 * max(gains)
    count, gain = next((i, gain) for i, gain in enumerate(gains, 1) if gain >= enough)
    if count <= have:
        return []
    what = "No stage stands out"
    if stage is not None and have:
        what = f"{stage.name} takes most of the workers' time"
    elif stage is not None:
        what = f"{stage.name} takes {stage.share:.0%} of the time in this process"
    many = f"{count} workers, not {have}," if have else f"{count} worker"
    plural = "s" if count > 1 and not have else ""
    text = f"{what}: {many}{plural} should give about {gain:.1f}x."
    return [Advice(text, gain)]


def _useful_workers(report: Report, stage: Stage | None) -> int:
    """How many workers have something to do: more than cores where stages wait.

    Threads wait at less cost, where there may be some.
    """
    if stage is not None and stage.threads is not None:
        return _cores()
    busy = max(_computing(report), 1 / MANY_WORKERS)
    return max(_cores(), min(round(_cores() / busy), MANY_WORKERS))


def _of_waiting(report: Report, stage: Stage | None) -> list[Advice]:
    """Threads for a stage that waits, rather than computes, where some can be had."""
    if stage is None or stage.threads is None or stage.cpu_share > MOSTLY:
        return []
    waited, consumer = _each(report)
    waiting = waited * stage.share * (1 - stage.cpu_share)
    threads = 2 if stage.threads else MANY_THREADS
    now = waited + consumer
    gain = now / (now - waiting * (1 - 1 / threads))
    how = f"{2 * stage.threads or MANY_THREADS} threads"
    text = (
        f"{stage.name} takes {stage.share:.0%} of the time and waits for"
        f" {1 - stage.cpu_share:.0%} of that: {how}"
        f" (ReadOptions.num_threads) should give about {gain:.1f}x."
    )
    return [Advice(text, gain)]


def _threads_wait(stage: Stage | None) -> bool:
    """Whether threads wait side by side for a stage, as workers would."""
    return stage is not None and bool(stage.threads) and stage.cpu_share <= MOSTLY


def _of_transport(report: Report) -> list[Advice]:
    """What to do where moving outputs between processes takes longest."""
    waited, consumer = _each(report)
    now = waited + consumer
    alone = _working_s(report) + consumer
    here = now / alone if alone else 1.0
    moving = min(_moving_s(report), now)
    smaller = now / (now - moving / 2)
    return [
        Advice(
            "Moving elements from the workers takes longest: without workers"
            f" (num_workers=0) this should give about {here:.1f}x.",
            here,
        ),
        Advice(
            "Moving elements from the workers takes longest: an output has about"
            f" {_bytes_each(report) / 1e6:.3g} MB. Half as much (smaller dtypes, fewer"
            " Python objects, arrays in place of lists) should give about"
            f" {smaller:.1f}x.",
            smaller,
        ),
    ]


def _bytes_each(report: Report) -> float:
    return report.bytes_per_s / report.outputs_per_s


def _cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
