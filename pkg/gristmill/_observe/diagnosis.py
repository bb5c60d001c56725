"""Finds the stage that limits a pipeline, and changes that may help."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gristmill._base.host_limits import count_cores
from gristmill._base.quantities import bytes_text
from gristmill._base.report import SENDING, Advice, Change, Limit, Report, Stage

# If the consumer waits for a smaller part of the time, the consumer limits.
MIN_WAITED = 0.1
# No stage stands out if the second one has at least this part of the time of the first
# one.  The second ratio counts if the first stage has less than half of the whole time.
BALANCED_RATIO = 0.65
BALANCED_RATIO_OF_MANY = 0.4
# A change that gains less is not worth it.
MIN_GAIN = 1.1
# The time to move an output from a worker: a call, and one copy of its bytes.
CALL_S = 50e-6
BYTES_PER_S = 4e9
# The number of threads to try if a stage that can have threads has none.
MAX_THREADS = 32
# More workers than cores are useful up to this number, if stages wait.
MAX_WORKERS = 16
# A larger share of a stage's time is most of it.
MAJORITY_SHARE = 0.5
NO_CHANGE = Advice("The consumer limits the rate: faster data would not help.", 1.0)


def diagnose(report: Report) -> Report:
    """Add the limit, the stage that limits and possible changes to a report."""
    stages = tuple(sorted(report.stages, key=lambda stage: -stage.share))
    report = dataclasses.replace(report, stages=stages)
    limit, stage = _find_limit(report)
    return dataclasses.replace(
        report,
        limit=limit,
        stage=None if stage is None else stage.name,
        advice=(NO_CHANGE,) if limit == "consumer" else (),
        untried=tuple(_find_changes(report, limit, stage)),
        notes=(*report.notes, *_size_notes(report, limit)),
    )


def add_advice(report: Report, gains: Sequence[tuple[Change, float]]) -> Report:
    """Add the gains of changes that were tried; a gain of 2 is twice the outputs."""
    tried = {(change.workers, change.threads) for change, _ in gains}
    untried = tuple(c for c in report.untried if (c.workers, c.threads) not in tried)
    report = dataclasses.replace(report, untried=untried)
    if report.limit == "consumer" or not gains:
        return report
    gains = sorted(gains, key=lambda item: -item[1])
    advice = [
        Advice(f"{change.text} gave {gain:.2f}x as many outputs a second.", gain)
        for change, gain in gains
        if gain >= MIN_GAIN
    ]
    if not advice:
        change, gain = gains[0]
        text = (
            f"Make {report.stage or 'the stages'} faster: the best change tried,"
            f" {change.text}, gave only {gain:.2f}x as many outputs a second."
        )
        advice = [Advice(text, 1.0)]
    return dataclasses.replace(report, advice=tuple(advice))


def predicted_gain(report: Report, workers: int) -> float:
    """Return how many times as many outputs a second `workers` should give.

    REQUIRES: the report has outputs; `workers` is at least 1.
    """
    waited_s, consumer_s = _times_per_output(report)
    work_s = (
        _workers_s(report)
        if report.workers
        else max(waited_s, _single_thread_s(report))
    )
    # Workers share the processor cores, but wait at the same time.
    share = max(1 / workers, _computing_share(report) / count_cores())
    return (waited_s + consumer_s) / max(work_s * share, _transfer_and_use_s(report))


def ready_gain(report: Report) -> float | None:
    """Return the predicted gain if all outputs were ready, or None if it is unbounded.

    The gain is at least 1, since outputs from a buffer may have come faster.
    """
    waited_s, consumer_s = _times_per_output(report)
    fastest_s = _transfer_and_use_s(report) if report.workers else consumer_s
    if not report.workers and fastest_s <= CALL_S:
        return None
    return max(1.0, (waited_s + consumer_s) / fastest_s)


def _single_thread_s(report: Report) -> float:
    """Return the time that one thread takes for an output that several may read now."""
    return sum(stage.seconds for stage in report.stages if stage.kind != "prefetch")


def _computing_share(report: Report) -> float:
    """Return the part of the stages' time in which they compute, not wait."""
    total_s = sum(stage.seconds for stage in report.stages)
    cpu_s = sum(stage.seconds * stage.cpu_share for stage in report.stages)
    return cpu_s / total_s if total_s else 1.0


def _transfer_and_use_s(report: Report) -> float:
    """Return the time to move and use an output of workers, in s."""
    _, consumer_s = _times_per_output(report)
    return consumer_s + CALL_S + _bytes_per_output(report) / BYTES_PER_S


def _times_per_output(report: Report) -> tuple[float, float]:
    """Return the time that the consumer waits for an output and uses it, in s."""
    total_s = report.seconds / report.outputs
    return total_s * report.waited, total_s * (1 - report.waited)


def _workers_s(report: Report) -> float:
    """Return the sum of the workers' time for an output, in s."""
    busy = sum(worker.busy for worker in report.workers)
    return busy * report.seconds / report.outputs


def _transfer_s(report: Report) -> float:
    """Return the time to move an output, in s, while all workers send at once.

    It is the mean time of a worker, divided by the number of workers, plus the time of
    this process.
    """
    sending = sum(worker.sending_s for worker in report.workers)
    receiving = sum(
        stage.seconds * stage.cpu_share
        for stage in report.stages
        if stage.kind == "transport" and stage.name != SENDING
    )
    return sending / len(report.workers) ** 2 + receiving


def _find_limit(report: Report) -> tuple[Limit, Stage | None]:
    """Return the limit, and the stage that limits."""
    if not report.outputs:
        return "unknown", None
    if report.waited < MIN_WAITED:
        return "consumer", None
    transport = [stage for stage in report.stages if stage.kind == "transport"]
    if (
        transport
        and report.workers
        and _transfer_s(report) > _workers_s(report) / len(report.workers)
    ):
        return "transport", transport[0]
    working = [stage for stage in report.stages if stage.kind != "transport"]
    if not working:
        return "unknown", None
    top = working[0]  # `diagnose` sorted the stages by their shares.
    second_share = working[1].share if len(working) > 1 else 0.0
    has_majority = top.share > MAJORITY_SHARE
    ratio = BALANCED_RATIO if has_majority else BALANCED_RATIO_OF_MANY
    if second_share >= ratio * top.share:
        return "balanced", None
    kind: Limit = top.kind  # type: ignore[assignment]
    return kind, top


def _find_changes(report: Report, limit: Limit, stage: Stage | None) -> list[Change]:
    """Return changes that may help, the one with the best prediction first."""
    if limit in ("unknown", "consumer"):
        return []
    if limit == "transport":
        changes = [_suggest_no_workers(report)]
    elif report.workers:
        changes = _suggest_workers(report, stage)
    else:
        changes = _suggest_threads(report, stage)
        if not _has_waiting_threads(stage):
            changes += _suggest_workers(report, stage)
    changes = [change for change in changes if change.predicted >= MIN_GAIN]
    return sorted(changes, key=lambda change: -change.predicted)


def _suggest_workers(report: Report, stage: Stage | None) -> list[Change]:
    """Return the fewest workers with nearly the best prediction, if more than now."""
    workers = len(report.workers)
    counts = range(1, _useful_workers(report, stage) + 1)
    gains = [predicted_gain(report, count) for count in counts]
    sufficient_gain = 0.95 * max(gains)  # Of the fewest workers to suggest.
    pairs = enumerate(gains, 1)
    count, gain = next(pair for pair in pairs if pair[1] >= sufficient_gain)
    if count <= workers:
        return []
    return [Change(_workers_text(count, workers), gain, workers=count)]


def _workers_text(count: int, workers: int) -> str:
    """Return a text such as "3 workers, not 2"."""
    instead = f", not {workers}" if workers else ""
    return f"{count} worker{'s' if count > 1 else ''}{instead}"


def _useful_workers(report: Report, stage: Stage | None) -> int:
    """Return how many workers have something to do: more than cores if stages wait.

    If the stage can have threads, these wait at less cost.
    """
    cores = max(1, round(count_cores()))
    if stage is not None and stage.threads is not None:
        return cores
    busy = max(_computing_share(report), 1 / MAX_WORKERS)
    return max(cores, min(round(cores / busy), MAX_WORKERS))


def _suggest_threads(report: Report, stage: Stage | None) -> list[Change]:
    """Return more threads for a stage that waits, if it can have threads.

    It may wait for threads of its own that compute, or for a disk at its limit.
    """
    if stage is None or stage.threads is None or stage.cpu_share > MAJORITY_SHARE:
        return []
    waited_s, consumer_s = _times_per_output(report)
    waiting_s = waited_s * stage.share * (1 - stage.cpu_share)
    factor = 2 if stage.threads else MAX_THREADS
    time_now_s = waited_s + consumer_s
    gain = time_now_s / (time_now_s - waiting_s * (1 - 1 / factor))
    threads = 2 * stage.threads or MAX_THREADS  # The latter if it has none.
    text = f"{threads} threads (ReadOptions.num_threads), not {stage.threads}"
    return [Change(text, gain, threads=threads)]


def _has_waiting_threads(stage: Stage | None) -> bool:
    """Return whether threads wait for a stage at the same time, as workers would."""
    return (
        stage is not None and bool(stage.threads) and stage.cpu_share <= MAJORITY_SHARE
    )


def _suggest_no_workers(report: Report) -> Change:
    waited_s, consumer_s = _times_per_output(report)
    without_workers_s = _workers_s(report) + consumer_s
    gain = (waited_s + consumer_s) / without_workers_s if without_workers_s else 1.0
    return Change("no workers (num_workers=0)", gain, workers=0)


def _size_notes(report: Report, limit: Limit) -> list[str]:
    if limit != "transport":
        return []
    return [
        f"Workers send about {bytes_text(_bytes_per_output(report))} for each output."
        " Smaller dtypes, fewer Python objects, and arrays instead of lists are cheaper"
        " to send."
    ]


def _bytes_per_output(report: Report) -> float:
    return report.bytes_per_s / report.outputs_per_s
