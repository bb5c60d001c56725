"""Finds out which stage limits, from what was measured, and what would help."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from gristmill._observe.report import (
    Advice,
    Buffer,
    Limit,
    Report,
    Stage,
    WorkerLoad,
)

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
MOSTLY = 0.5


@dataclasses.dataclass(kw_only=True)
class Evidence:
    """What was measured of a run; see `Report` for what is named as there.

    Attributes:
        outputs: Outputs of which the time was taken.
        next_s: How long their consumer waited for them, in s.
        consumer_s: How long it was away, in s.
        durations_s: How long some of the waits were.
        bytes_each: About the size of an output.
    """

    outputs: int = 0
    next_s: float = 0.0
    consumer_s: float = 0.0
    durations_s: Sequence[float] = ()
    bytes_each: float = 0.0
    stages: Sequence[Stage] = ()
    buffers: Sequence[Buffer] = ()
    workers: Sequence[WorkerLoad] = ()
    notes: Sequence[str] = ()

    @property
    def seconds(self) -> float:
        """How long was measured."""
        return self.next_s + self.consumer_s

    @property
    def waited(self) -> float:
        """The part of the time that the consumer waited."""
        return self.next_s / self.seconds if self.seconds else 0.0

    @property
    def busy(self) -> float:
        """The part of their time in which workers computed."""
        if not self.workers:
            return 0.0
        return sum(worker.busy for worker in self.workers) / len(self.workers)

    @property
    def working_s(self) -> float:
        """What computing an output takes of the workers' common time."""
        return self.busy * self.seconds / self.outputs

    @property
    def moving_s(self) -> float:
        """What moving an output takes of the workers' common time, and of ours."""
        if not self.workers:
            return 0.0
        sending = sum(worker.sending_s for worker in self.workers)
        receiving = sum(
            stage.seconds * stage.cpu_share
            for stage in self.stages
            if stage.kind == "transport"
        )
        return sending / len(self.workers) ** 2 + receiving


def diagnose(evidence: Evidence) -> Report:
    """What a run's measurements mean."""
    stages = tuple(sorted(evidence.stages, key=lambda stage: -stage.share))
    limit, stage = _limit(evidence, stages)
    durations = evidence.durations_s or [0.0]
    p50, p95, p99 = np.quantile(durations, [0.5, 0.95, 0.99]).tolist()
    rate = evidence.outputs / evidence.seconds if evidence.seconds else 0.0
    return Report(
        limit=limit,
        stage=None if stage is None else stage.name,
        seconds=evidence.seconds,
        outputs=evidence.outputs,
        outputs_per_s=rate,
        bytes_per_s=rate * evidence.bytes_each,
        waited=evidence.waited,
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
        stages=stages,
        buffers=tuple(evidence.buffers),
        workers=tuple(evidence.workers),
        advice=tuple(_advice(evidence, limit, stage)),
        notes=tuple(evidence.notes),
    )


def _limit(evidence: Evidence, stages: Sequence[Stage]) -> tuple[Limit, Stage | None]:
    """What limits, and the stage that does."""
    if not evidence.outputs:
        return "unknown", None
    if evidence.waited < KEPT_UP:
        return "consumer", None
    transport = [stage for stage in stages if stage.kind == "transport"]
    if transport and evidence.workers and evidence.moving_s > evidence.working_s:
        return "transport", transport[0]
    working = [stage for stage in stages if stage.kind != "transport"]
    if not working:
        return "unknown", None
    top = working[0]
    second = working[1].share if len(working) > 1 else 0.0
    if second >= (CLOSE if top.share > MOSTLY else NEAR) * top.share:
        return "balanced", None
    kind: Limit = top.kind  # type: ignore[assignment]
    return kind, top


def _advice(evidence: Evidence, limit: Limit, stage: Stage | None) -> list[Advice]:
    """What to change, the best first."""
    if limit == "unknown":
        return []
    if limit == "consumer":
        text = "The consumer limits: nothing to gain from faster data."
        return [Advice(text, 1.0)]
    if limit == "transport":
        found = _of_transport(evidence)
    elif evidence.workers:
        found = _of_workers(evidence, stage)
    else:
        found = [*_of_waiting(evidence, stage), *_of_workers(evidence, stage)]
    found = [advice for advice in found if advice.gain >= WORTH]
    if not found:
        found = [Advice(_cheaper(stage), 1.0)]
    return sorted(found, key=lambda advice: -advice.gain)


def _cheaper(stage: Stage | None) -> str:
    what = "What the stages do" if stage is None else f"What {stage.name} does"
    return (
        f"{what} has to become cheaper: neither threads nor more worker processes"
        f" would give more on this machine's {_cores()} cores."
    )


def _of_workers(evidence: Evidence, stage: Stage | None) -> list[Advice]:
    """Worker processes for what is computed, or more where those there are are busy."""
    now = evidence.seconds / evidence.outputs
    have = len(evidence.workers)
    work = now * evidence.busy * have if have else evidence.next_s / evidence.outputs
    count, gain = _best_workers(work, now, evidence)
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


def _best_workers(work: float, now: float, evidence: Evidence) -> tuple[int, float]:
    """The smallest number of workers that gives nearly the most, and its gain.

    Args:
        work: What one output takes a worker, in s.
        now: What it takes now in all, in s.
        evidence: Of the run.
    """
    rest = evidence.consumer_s / evidence.outputs + _to_move(evidence)
    gains = [now / max(work / count, rest) for count in range(1, _cores() + 1)]
    best = max(gains)
    count = next(i for i, gain in enumerate(gains, 1) if gain >= 0.95 * best)
    return count, gains[count - 1]


def _of_waiting(evidence: Evidence, stage: Stage | None) -> list[Advice]:
    """Threads for a stage that waits, rather than computes."""
    each = evidence.next_s / evidence.outputs
    if stage is None or stage.cpu_share > MOSTLY:
        return []
    by_threads = any(s.kind == "prefetch" and s.share == 0 for s in evidence.stages)
    consumer = evidence.consumer_s / evidence.outputs
    waiting = each * stage.share * (1 - stage.cpu_share)
    threads = 2 if by_threads else MANY_THREADS
    gain = (each + consumer) / (each - waiting * (1 - 1 / threads) + consumer)
    how = "twice as many threads" if by_threads else f"{threads} threads"
    text = (
        f"{stage.name} takes {stage.share:.0%} of the time and waits for"
        f" {1 - stage.cpu_share:.0%} of that: {how}"
        f" (ReadOptions.num_threads) should give about {gain:.1f}x."
    )
    return [Advice(text, gain)]


def _of_transport(evidence: Evidence) -> list[Advice]:
    """What to do where moving outputs between processes takes longest."""
    now = evidence.seconds / evidence.outputs
    have = len(evidence.workers)
    work = now * evidence.busy * have
    consumer = evidence.consumer_s / evidence.outputs
    here = now / (work + consumer) if work + consumer else 1.0
    moving = min(evidence.moving_s, now)
    smaller = now / (now - moving / 2)
    return [
        Advice(
            "Moving elements from the workers takes longest: without workers"
            f" (num_workers=0) this should give about {here:.1f}x.",
            here,
        ),
        Advice(
            "Moving elements from the workers takes longest: an output has about"
            f" {evidence.bytes_each / 1e6:.3g} MB. Half as much (smaller dtypes, fewer"
            " Python objects, arrays in place of lists) should give about"
            f" {smaller:.1f}x.",
            smaller,
        ),
    ]


def _to_move(evidence: Evidence) -> float:
    """What it should take to move an output from a worker, in s."""
    return CALL_S + evidence.bytes_each / BYTES_PER_S


def _cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
