"""Makes reports of an iterator that is in use, and of a short run of a pipeline."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill._base.report import Buffer, Report, Stage, WorkerLoad
from gristmill._base.trials import NotTriedError
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.observer import suppress_observation
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._dataset.parallel.chain_program import ChainProgram
from gristmill._engine.recording import recording
from gristmill._engine.worker_stats import LocalStats, RemoteStats
from gristmill._observe import cluster_workers, generators, local_workers
from gristmill._observe.accounting import count_for_report
from gristmill._observe.diagnosis import diagnose
from gristmill._observe.meter import Measurement, Meter
from gristmill._observe.observed import ObservedDatasetIterator
from gristmill._observe.recorded import with_intervals
from gristmill._observe.sampling import samplings_of
from gristmill._observe.summary import summarize
from gristmill._observe.timed_run import RunTimes, check_seconds, run_for
from gristmill._observe.verification import ChainTrial, Trial, verify_report

AFTER_READING = "steps after to_iter_dataset in this process"
UNMEASURED_STEPS_NOTE = (
    "Steps of an IterDataset, and steps in workers, are not measured separately. To"
    " measure them, call dataset.report(), or iterate with"
    " DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING)."
)
# If other programs had at least this part of the time, a report has `OTHERS_NOTE`.
MANY_OTHERS_SHARE = 0.1
OTHERS_NOTE = (
    "Other threads and programs used the processor for {:.0%} of the time. The rate"
    " includes that time; the times of stages do not."
)
THREAD_JOIN_TIMEOUT_S = 1.0
SAMPLED_NOTE = "Only some calls of next() were timed."


def report_of(iterator: Any, verify: bool = False, seconds: float = 2.0) -> Report:
    """Return the report of an iterator's run so far; see `DatasetIterator.report`.

    Raises:
        ValueError: Another iterator iterates over the chain that the iterator is part
            of, or `seconds` is not positive.
    """
    report = _report_so_far(iterator)
    if not verify:
        return report
    return verify_report(report, _make_trial(iterator), seconds, None)


def _make_trial(iterator: Any) -> Trial:
    """Return the trial of an iterator's pipeline; loaders' iterators make their own."""
    if isinstance(iterator, DatasetIterator):
        return ChainTrial(iterator._watch.dataset, iterator)
    trial: Trial = iterator._trial()
    return trial


def _report_so_far(iterator: Any) -> Report:
    """Return the report of the calls that were timed, and time the next calls."""
    watch = iterator._watch
    if watch is None:
        raise ValueError(
            f"{iterator} is part of another iterator's chain, so its calls were not"
            " timed. Call report() of the iterator that iter(dataset) returned."
        )
    watch.count(iterator)
    watch.start(iterator)
    cluster_stats = cluster_workers.usage_of(iterator)
    local_stats = local_workers.usage_of(iterator)
    # The time of the first output includes the start of the workers.
    skips_first = cluster_stats is not None or bool(local_stats and local_stats.workers)
    first = min(watch.outputs, int(skips_first))
    next_s = (watch.total_ns - first * watch.first_ns) / 1e9
    seconds = next_s + watch.gap_ns / 1e9
    report = _measured_report(
        watch.outputs - first,
        seconds,
        next_s / seconds if seconds else 0.0,
        [ns / 1e9 for ns in list(watch.durations_ns)],
        watch.bytes / max(watch.sized_elements, 1),
    )
    notes = [] if watch.complete else [SAMPLED_NOTE]
    notes += local_workers.auto_notes(iterator)
    if isinstance(iterator, ObservedDatasetIterator):
        report = _with_nodes(report, iterator.measurement)
        if cluster_stats is not None and cluster_stats.workers_text == "workers":
            notes.append(cluster_workers.unmeasured_steps_note(cluster_stats))
    elif cluster_stats is not None:
        notes.append(cluster_workers.unmeasured_steps_note(cluster_stats))
    elif local_stats is not None:
        report = local_workers.with_usage(report, local_stats, iterator)
        notes += report.notes
        if isinstance(iterator, DatasetIterator):
            notes.append(UNMEASURED_STEPS_NOTE)
    elif not isinstance(iterator, DatasetIterator):
        notes.append(local_workers.TOO_FEW_OUTPUTS_NOTE)
    else:
        stages = tuple(_sampled_stages(iterator, report))
        report = dataclasses.replace(report, stages=stages)
        notes.append(UNMEASURED_STEPS_NOTE)
    buffers = tuple(_find_buffers(iterator))
    sources = tuple(count_for_report(iterator).items())
    report = dataclasses.replace(
        report, buffers=buffers, notes=tuple(notes), sources=sources
    )
    return _diagnose(report, cluster_stats)


def _diagnose(report: Report, cluster_stats: RemoteStats | None) -> Report:
    return (
        diagnose(report)
        if cluster_stats is None
        else cluster_workers.with_usage(report, cluster_stats)
    )


def _measured_report(
    outputs: int,
    seconds: float,
    waited: float,
    durations_s: list[float],
    bytes_per_output: float,
) -> Report:
    """Return a report of calls of ``next``.

    Args:
        outputs: The number of outputs whose time was taken.
        seconds: The time for these by the wall clock, in s.
        waited: The part of the time in which the consumer waited, from 0 to 1.
        durations_s: The durations of some of the waits, in s.
        bytes_per_output: The approximate size of an output.
    """
    rate = outputs / seconds if seconds else 0.0
    p50, p95, p99 = np.quantile(durations_s or [0.0], [0.5, 0.95, 0.99]).tolist()
    return Report(
        limit="unknown",
        stage=None,
        seconds=seconds,
        outputs=outputs,
        outputs_per_s=rate,
        bytes_per_s=rate * bytes_per_output,
        waited=waited,
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
    )


@generators.restore_generators()
def report_of_loader(
    loader: Any,
    seconds: float,
    consume: Callable[[Any], Any] | None,
    verify: bool,
    trace: bool,
) -> Report:
    """Run a loader and return its report; see `gristmill.DataLoader.report`."""
    check_seconds(seconds)
    trial: Trial = loader._trial()
    intervals = None
    with recording() if trace else contextlib.nullcontext() as recorded:
        try:
            iterator = trial.open(0, True)
        except NotTriedError as error:
            raise ValueError(f"report() cannot run this loader: {error}") from None
        report = _report_from_times(run_for(iterator, seconds, consume, trial.close))
        if recorded is not None:
            intervals = recorded.read()
    local_stats = local_workers.usage_of(iterator)
    if local_stats is not None:
        report = local_workers.with_usage(report, local_stats, iterator)
    cluster_stats = cluster_workers.usage_of(iterator)
    report = _diagnose(report, cluster_stats)
    if intervals is not None:
        stats = local_stats or LocalStats((), {}, {})
        pids = [worker.pid for worker in stats.workers]
        report = with_intervals(
            report, intervals, stats.names, None if cluster_stats else pids
        )
    return verify_report(report, trial, seconds, consume) if verify else report


@generators.restore_generators()
def report_of_run(
    dataset: Any,
    seconds: float,
    consume: Callable[[Any], Any] | None,
    verify: bool = False,
    trace: bool = False,
) -> Report:
    """Run a chain and return its report; see `IterDataset.report`."""
    report = _report_of_chain(dataset, seconds, consume, trace)
    if not verify:
        return report
    return verify_report(report, ChainTrial(dataset, None), seconds, consume)


def _report_of_chain(
    dataset: Any, seconds: float, consume: Callable[[Any], Any] | None, trace: bool
) -> Report:
    check_seconds(seconds)
    unmeasured_report = intervals = None
    iterator: Any = ObservedDatasetIterator(dataset)
    if all(meter.kind != "transport" for meter in iterator.measurement.meters):
        # Measuring takes time itself, so a run without it gives the waits.
        other_threads = set(threading.enumerate())
        # It gets a third of the time.
        with suppress_observation():
            unmeasured_report = _run(iter(dataset), seconds / 3, consume)
        seconds -= seconds / 3
        for thread in set(threading.enumerate()) - other_threads:
            thread.join(THREAD_JOIN_TIMEOUT_S)  # Do not measure their last work.
    with recording() if trace else contextlib.nullcontext() as recorded:
        report = _run(iterator, seconds, consume)
        if recorded is not None:
            intervals = recorded.read()
    if unmeasured_report is not None and unmeasured_report.outputs:
        report = unmeasured_report
    report = _with_nodes(report, iterator.measurement)
    cluster_stats = cluster_workers.usage_of(iterator)
    report = _diagnose(report, cluster_stats)
    if intervals is not None:
        pids = [worker.pid for worker in report.workers]
        report = with_intervals(
            report, intervals, ChainProgram.stages, None if cluster_stats else pids
        )
    return report


def _run(iterator: Any, seconds: float, consume: Callable[[Any], Any] | None) -> Report:
    """Return the report of a run of about `seconds`."""
    times = run_for(iterator, seconds, consume, lambda one: one.close())
    return _report_from_times(times)


def _report_from_times(times: RunTimes) -> Report:
    return _measured_report(
        times.outputs,
        times.seconds,
        times.waited,
        times.waits_s,
        times.bytes_per_output,
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
            pid=worker.pid,
            busy=min(worker.working_ns / max(worker.alive_ns, 1), 1.0),
            sending_s=worker.sending_ns / max(worker.elements, 1) / 1e9,
            elements=worker.elements,
        )
        for worker in measurement.worker_numbers()
    ]
    others_s = measurement.others_ns / 1e9
    total_s = sum(stage.seconds for stage in stages) * outputs + others_s
    notes = report.notes
    if total_s and others_s / total_s >= MANY_OTHERS_SHARE:
        notes = (*notes, OTHERS_NOTE.format(others_s / total_s))
    return dataclasses.replace(
        report, stages=tuple(stages), workers=tuple(workers), notes=notes
    )


def _reading_threads(measurement: Measurement) -> dict[int, int]:
    """Return how many threads of this process may read each node by index."""
    threads_by_node: dict[int, int] = {}
    nodes_in_workers: set[int] = set()
    # Parents have higher numbers.
    for meter, dataset in zip(measurement.meters, measurement.datasets, strict=True):
        if meter.kind == "transport" or meter.number in nodes_in_workers:
            nodes_in_workers.update(meter.inputs)
            continue
        threads = threads_by_node.get(meter.number)
        if isinstance(dataset, PrefetchIterDataset):
            threads = dataset._read_options.num_threads
        if threads is not None:
            threads_by_node.update(dict.fromkeys(meter.inputs, threads))
    return threads_by_node


def _stage(node: Meter, share: float, outputs: float, threads: int | None) -> Stage:
    """Return the stage of a node that was measured while `outputs` were made."""
    numbers = node.numbers
    return Stage(
        node.name,
        node.kind,
        share,
        numbers.total_ns / outputs / 1e9,
        numbers.cpu_share,
        numbers.elements,
        threads,
    )


def _sampled_stages(iterator: Any, report: Report) -> list[Stage]:
    """Return the nodes that are read by index, and the rest as one stage."""
    if not report.outputs:
        return []
    wait_per_output_s = report.waited * report.seconds / report.outputs
    stages: list[Stage] = []
    # The part of the wait for an output that no `Sampling` explains, in s.
    unmeasured_s = wait_per_output_s
    for sampling, feed in samplings_of(iterator):
        if sampling.measurement is None:
            continue
        if not (sampling.measured_elements and sampling.index_count):
            continue
        elements_per_output = sampling.index_count / report.outputs
        element_s = sampling.measured_ns / sampling.measured_elements / 1e9
        # Threads take longer for elements than the consumer waits.
        share = min(element_s * elements_per_output / wait_per_output_s, 1.0)
        unmeasured_s -= share * wait_per_output_s
        nodes = summarize(sampling.measurement)
        total_ns = sum(node.numbers.total_ns for node in nodes) or 1
        for node in nodes:
            part = node.numbers.total_ns / total_ns
            outputs = sampling.measured_elements / elements_per_output
            threads = feed.read_options.num_threads
            stages.append(_stage(node, part * share, outputs, threads))
    unmeasured_s = max(unmeasured_s, 0.0)
    unmeasured = Stage(
        AFTER_READING,
        "transform" if stages else "unknown",
        unmeasured_s / wait_per_output_s,
        unmeasured_s,
        1.0,
        report.outputs,
    )
    return [*stages, unmeasured]


def _find_buffers(iterator: Any) -> list[Buffer]:
    """Return the buffers of elements read ahead, with the mean number of ready ones."""
    return [
        Buffer(
            str(feed), sampling.ready_elements / sampling.ready_samples, feed.capacity
        )
        for sampling, feed in samplings_of(iterator)
        if sampling.ready_samples and feed.capacity
    ]
