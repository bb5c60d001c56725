"""Makes reports: of an iterator that somebody uses, and of a short run of a chain."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from gristmill._base.sizes import size_of
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.observer import as_inner
from gristmill._observe.diagnosis import Evidence, diagnose
from gristmill._observe.meter import Measurement, Stopwatch
from gristmill._observe.observed import ObservedDatasetIterator, observed
from gristmill._observe.report import Buffer, Report, Stage, WorkerLoad
from gristmill._observe.sampling import samplings_of
from gristmill._observe.summary import NodeSummary, summarize

BEHIND = "what is behind to_iter_dataset in this process"
NOT_TOLD_APART = (
    "Steps of an IterDataset are not told apart, nor is what workers do: iterate with"
    " DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING), or"
    " see dataset.report()."
)
NOT_SEEN = "What a DataLoader does inside is not measured."
END_OF_THREADS_S = 1.0
SAMPLED = "Some calls of next() were timed, not all of them."


def report_of(iterator: Any) -> Report:
    """What is known of an iterator's run so far.

    Raises:
        ValueError: It is part of a chain that another iterator iterates over.
    """
    watch = iterator._watch
    if watch is None:
        raise ValueError(
            f"{iterator} is part of a chain, so its calls were not timed. Ask the"
            " iterator that iter(dataset) returned for the report."
        )
    watch.count(iterator)
    watch.start(iterator)
    calls = watch.calls
    evidence = Evidence(
        outputs=calls.outputs,
        next_s=calls.next_ns / 1e9,
        consumer_s=calls.consumer_s,
        durations_s=[ns / 1e9 for ns in list(calls.durations_ns)],
        bytes_each=calls.bytes / max(calls.sized, 1),
        buffers=_buffers(iterator),
    )
    if isinstance(iterator, ObservedDatasetIterator):
        _add_nodes(evidence, iterator.measurement)
    elif not isinstance(iterator, DatasetIterator):
        evidence.notes = [NOT_SEEN]
    else:
        evidence.stages = _sampled_stages(iterator, evidence)
        evidence.notes = [NOT_TOLD_APART]
    if not watch.complete:
        evidence.notes = [SAMPLED, *evidence.notes]
    return diagnose(evidence)


def report_of_run(
    dataset: Any, seconds: float, consume: Callable[[Any], Any] | None
) -> Report:
    """See `IterDataset.report`."""
    if seconds <= 0:
        raise ValueError(f"seconds must be positive, got {seconds}")
    plain = None
    iterator = observed(dataset, logs=False, folder=None)
    works_elsewhere = any(
        meter.kind == "transport" for meter in iterator.measurement.meters
    )
    if not works_elsewhere:
        # Measuring takes time itself, so what is waited for is taken without it.
        before = set(threading.enumerate())
        with as_inner():
            plain = _run(iter(dataset), seconds / 3, consume)
        seconds -= seconds / 3
        for thread in set(threading.enumerate()) - before:
            thread.join(END_OF_THREADS_S)  # What they still do would be measured.
    measured = _run(iterator, seconds, consume)
    _add_nodes(measured, iterator.measurement)
    if plain is not None and plain.outputs:
        plain.stages = measured.stages
        plain.notes = measured.notes
        measured = plain
    return diagnose(measured)


def _run(
    iterator: Any, seconds: float, consume: Callable[[Any], Any] | None
) -> Evidence:
    """Take outputs for about so long; the first one, and what begins then, aside."""
    waits: list[float] = []
    away = 0.0
    size = 0
    end = object()
    try:
        output = next(iterator, end)
        until = time.perf_counter() + seconds
        while output is not end and time.perf_counter() < until:
            consumed = Stopwatch()
            if consume is not None:
                consume(output)
            consumed_ns = consumed.read_ns()
            waited = Stopwatch()
            output = next(iterator, end)
            if output is end:
                break
            waits.append(waited.read_ns() / 1e9)
            away += consumed_ns / 1e9
            if len(waits) & (len(waits) - 1) == 0:
                size = size_of(output)
    finally:
        iterator.close()
    return Evidence(
        outputs=len(waits),
        next_s=sum(waits),
        consumer_s=away,
        durations_s=waits,
        bytes_each=size,
    )


def _add_nodes(evidence: Evidence, measurement: Measurement) -> None:
    """What is known of each node, and of each worker."""
    nodes = summarize(measurement)
    outputs = max(measurement.meters[0].numbers.elements, 1)
    evidence.stages = [_stage(node, node.wait_ratio or 0.0, outputs) for node in nodes]
    evidence.workers = [
        WorkerLoad(
            pid=said.pid,
            busy=min(said.working_ns / max(said.alive_ns, 1), 1.0),
            sending_s=said.sending_ns / max(said.elements, 1) / 1e9,
            elements=said.elements,
        )
        for said in measurement.workers.values()
    ]


def _stage(node: NodeSummary, share: float, outputs: float) -> Stage:
    total = node.total_processing_time_ns
    return Stage(
        name=node.name,
        kind=node.kind,
        share=share,
        seconds=total / outputs / 1e9,
        cpu_share=node.computes,
        elements=node.num_produced_elements,
    )


def _sampled_stages(iterator: Any, evidence: Evidence) -> Sequence[Stage]:
    """The nodes that are read by index, and the rest as one stage."""
    if not evidence.outputs:
        return []
    each = evidence.next_s / evidence.outputs
    found: list[Stage] = []
    rest = each
    for sampling, _ in samplings_of(iterator):
        if sampling.measurement is None or not (sampling.measured and sampling.indices):
            continue
        per_output = sampling.indices / evidence.outputs
        took = sampling.took_ns / sampling.measured * per_output / 1e9
        # In threads elements take longer than they are waited for.
        share = min(took / each, 1.0)
        rest -= share * each
        nodes = summarize(sampling.measurement)
        whole = sum(node.total_processing_time_ns for node in nodes) or 1
        for node in nodes:
            part = node.total_processing_time_ns / whole
            found.append(_stage(node, part * share, sampling.measured / per_output))
    kind = "transform" if found else "unknown"
    rest = max(rest, 0.0)
    return [*found, Stage(BEHIND, kind, rest / each, rest, 1.0, evidence.outputs)]


def _buffers(iterator: Any) -> list[Buffer]:
    return [
        Buffer(str(feed), sampling.ready / sampling.looks, feed.capacity)
        for sampling, feed in samplings_of(iterator)
        if sampling.looks and feed.capacity
    ]
