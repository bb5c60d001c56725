"""Makes reports of an iterator that is in use, and of a short run of a pipeline."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill._base.report import Buffer, Report, Stage, WorkerLoad
from gristmill._base.trials import NotTriedError
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.observer import as_inner
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._engine.worker_stats import Usage
from gristmill._observe import far_workers, generators, near_workers
from gristmill._observe.diagnosis import diagnose
from gristmill._observe.meter import Measurement, Meter
from gristmill._observe.observed import ObservedDatasetIterator
from gristmill._observe.running import Took, check_seconds, run_for
from gristmill._observe.sampling import samplings_of
from gristmill._observe.summary import summarize
from gristmill._observe.verifying import ChainTrial, Trial, verified

BEHIND = "what is behind to_iter_dataset in this process"
NOT_TOLD_APART = (
    "Steps of an IterDataset are not told apart, nor those in workers: iterate with"
    " DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING), or"
    " see dataset.report()."
)
# From this part of the time on, a report has the note `OTHERS`.
MANY_OTHERS = 0.1
OTHERS = (
    "Other threads and programs had the processor for {:.0%} of the time. The rate"
    " counts that; the times of stages do not."
)
END_OF_THREADS_S = 1.0
SAMPLED = "Some calls of next() were timed, not all of them."


def report_of(iterator: Any, verify: bool = False, seconds: float = 2.0) -> Report:
    """Return the report of an iterator's run so far; see `DatasetIterator.report`.

    Raises:
        ValueError: Another iterator iterates over the chain that the iterator is part
            of, or `seconds` is not positive.
    """
    report = _known(iterator)
    if not verify:
        return report
    return verified(report, _trial_of(iterator), seconds, None)


def _trial_of(iterator: Any) -> Trial:
    if isinstance(iterator, DatasetIterator):
        return ChainTrial(iterator._watch.dataset, iterator)
    found: Trial = iterator._trial()
    return found


def _known(iterator: Any) -> Report:
    watch = iterator._watch
    if watch is None:
        raise ValueError(
            f"{iterator} is part of a chain, so its calls were not timed. Ask the"
            " iterator that iter(dataset) returned for the report."
        )
    watch.count(iterator)
    watch.start(iterator)
    usage = far_workers.usage_of(iterator)
    near = near_workers.usage_of(iterator)
    # The first output of workers took as long as their start.
    begins = usage is not None or bool(near and near.workers)
    first = min(watch.outputs, int(begins))
    next_s = (watch.next_ns - first * watch.first_ns) / 1e9
    seconds = next_s + watch.gap_ns / 1e9
    report = _measured_report(
        watch.outputs - first,
        seconds,
        next_s / seconds if seconds else 0.0,
        [ns / 1e9 for ns in list(watch.durations_ns)],
        watch.bytes / max(watch.sized, 1),
    )
    notes = [] if watch.complete else [SAMPLED]
    if isinstance(iterator, ObservedDatasetIterator):
        report = _with_nodes(report, iterator.measurement)
    elif usage is not None:
        notes.append(far_workers.NOT_TOLD_APART)
    elif near is not None:
        report = near_workers.with_usage(report, near, iterator)
        notes += report.notes
        if isinstance(iterator, DatasetIterator):
            notes.append(NOT_TOLD_APART)
    elif not isinstance(iterator, DatasetIterator):
        notes.append(near_workers.NOT_YET)
    else:
        stages = tuple(_sampled_stages(iterator, report))
        report = dataclasses.replace(report, stages=stages)
        notes.append(NOT_TOLD_APART)
    buffers = tuple(_buffers(iterator))
    report = dataclasses.replace(report, buffers=buffers, notes=tuple(notes))
    return _diagnosed(report, usage)


def _diagnosed(report: Report, usage: Usage | None) -> Report:
    return diagnose(report) if usage is None else far_workers.with_usage(report, usage)


def _measured_report(
    outputs: int,
    seconds: float,
    waited: float,
    durations_s: list[float],
    bytes_each: float,
) -> Report:
    """Return a report of calls of ``next``.

    Args:
        outputs: The number of outputs whose time was taken.
        seconds: The time for these by the wall clock, in s.
        waited: The part of the time in which the consumer waited, from 0 to 1.
        durations_s: The durations of some of the waits, in s.
        bytes_each: The approximate size of an output.
    """
    rate = outputs / seconds if seconds else 0.0
    p50, p95, p99 = np.quantile(durations_s or [0.0], [0.5, 0.95, 0.99]).tolist()
    return Report(
        limit="unknown",
        stage=None,
        seconds=seconds,
        outputs=outputs,
        outputs_per_s=rate,
        bytes_per_s=rate * bytes_each,
        waited=waited,
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
    )


@generators.put_back()
def report_of_loader(
    loader: Any,
    seconds: float,
    consume: Callable[[Any], Any] | None,
    verify: bool,
) -> Report:
    """Run a loader and return its report; see `gristmill.DataLoader.report`."""
    check_seconds(seconds)
    trial: Trial = loader._trial()
    try:
        iterator = trial.open(0, True)
    except NotTriedError as error:
        raise ValueError(f"This loader cannot be tried: {error}") from None
    report = _report_of(run_for(iterator, seconds, consume, trial.close))
    near = near_workers.usage_of(iterator)
    if near is not None:
        report = near_workers.with_usage(report, near, iterator)
    usage = far_workers.usage_of(iterator)
    report = _diagnosed(report, usage)
    return verified(report, trial, seconds, consume) if verify else report


@generators.put_back()
def report_of_run(
    dataset: Any,
    seconds: float,
    consume: Callable[[Any], Any] | None,
    verify: bool = False,
) -> Report:
    """Run a chain and return its report; see `IterDataset.report`."""
    report = _of_run(dataset, seconds, consume)
    if not verify:
        return report
    return verified(report, ChainTrial(dataset, None), seconds, consume)


def _of_run(
    dataset: Any, seconds: float, consume: Callable[[Any], Any] | None
) -> Report:
    check_seconds(seconds)
    plain = None
    iterator: Any = ObservedDatasetIterator(dataset)
    if all(meter.kind != "transport" for meter in iterator.measurement.meters):
        # Measuring takes time itself, so the waits are taken without it.
        before = set(threading.enumerate())
        with as_inner():
            plain = _run(iter(dataset), seconds / 3, consume)
        seconds -= seconds / 3
        for thread in set(threading.enumerate()) - before:
            thread.join(END_OF_THREADS_S)  # Else their last work would be measured.
    report = _run(iterator, seconds, consume)
    if plain is not None and plain.outputs:
        report = plain
    report = _with_nodes(report, iterator.measurement)
    return _diagnosed(report, far_workers.usage_of(iterator))


def _run(iterator: Any, seconds: float, consume: Callable[[Any], Any] | None) -> Report:
    """Return the report of a run of about `seconds`."""
    took = run_for(iterator, seconds, consume, lambda one: one.close())
    return _report_of(took)


def _report_of(took: Took) -> Report:
    return _measured_report(
        took.outputs, took.seconds, took.waited, took.waits_s, took.bytes_each
    )


def _with_nodes(report: Report, measurement: Measurement) -> Report:
    """Add the stages and the workers of a measurement."""
    outputs = max(measurement.meters[0].numbers.elements, 1)
    threads = _reading_threads(measurement)
    stages = [
        _stage(node, node.wait_ratio or 0.0, outputs, threads.get(node.number))
        for node in summarize(measurement)
    ]
    workers = [
        WorkerLoad(
            pid=said.pid,
            busy=min(said.working_ns / max(said.alive_ns, 1), 1.0),
            sending_s=said.sending_ns / max(said.elements, 1) / 1e9,
            elements=said.elements,
        )
        for said in measurement.workers.values()
    ]
    others_s = measurement.others_ns / 1e9
    taken_s = sum(stage.seconds for stage in stages) * outputs + others_s
    notes = report.notes
    if taken_s and others_s / taken_s >= MANY_OTHERS:
        notes = (*notes, OTHERS.format(others_s / taken_s))
    return dataclasses.replace(
        report, stages=tuple(stages), workers=tuple(workers), notes=notes
    )


def _reading_threads(measurement: Measurement) -> dict[int, int]:
    """Return how many threads of this process may read each node by index."""
    found: dict[int, int] = {}
    elsewhere: set[int] = set()
    # Parents have higher numbers.
    for meter, dataset in zip(measurement.meters, measurement.datasets, strict=True):
        if meter.kind == "transport" or meter.number in elsewhere:
            elsewhere.update(meter.inputs)
            continue
        threads = found.get(meter.number)
        if isinstance(dataset, PrefetchIterDataset):
            threads = dataset._read_options.num_threads
        if threads is not None:
            found.update(dict.fromkeys(meter.inputs, threads))
    return found


def _stage(node: Meter, share: float, outputs: float, threads: int | None) -> Stage:
    numbers = node.numbers
    seconds = numbers.total_ns / outputs / 1e9
    made = numbers.elements
    return Stage(node.name, node.kind, share, seconds, numbers.computes, made, threads)


def _sampled_stages(iterator: Any, report: Report) -> list[Stage]:
    """Return the nodes that are read by index, and the rest as one stage."""
    if not report.outputs:
        return []
    each = report.waited * report.seconds / report.outputs
    found: list[Stage] = []
    rest = each
    for sampling, feed in samplings_of(iterator):
        if sampling.measurement is None or not (sampling.measured and sampling.indices):
            continue
        per_output = sampling.indices / report.outputs
        took = sampling.took_ns / sampling.measured * per_output / 1e9
        # Threads take longer for elements than the consumer waits.
        share = min(took / each, 1.0)
        rest -= share * each
        nodes = summarize(sampling.measurement)
        whole = sum(node.numbers.total_ns for node in nodes) or 1
        for node in nodes:
            part = node.numbers.total_ns / whole
            measured = sampling.measured / per_output
            threads = feed.read_options.num_threads
            found.append(_stage(node, part * share, measured, threads))
    kind = "transform" if found else "unknown"
    rest = max(rest, 0.0)
    return [*found, Stage(BEHIND, kind, rest / each, rest, 1.0, report.outputs)]


def _buffers(iterator: Any) -> list[Buffer]:
    return [
        Buffer(str(feed), sampling.ready / sampling.looks, feed.capacity)
        for sampling, feed in samplings_of(iterator)
        if sampling.looks and feed.capacity
    ]
