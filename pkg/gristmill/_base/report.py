"""The report of a loader or a chain of datasets, as fields and as text."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Sequence
from typing import Literal

from gristmill._base.object_repr import printable
from gristmill._base.quantities import bytes_text, time_text
from gristmill._base.source_counts import SourceCount
from gristmill._base.trace import Trace

Limit = Literal[
    "read",
    "order",
    "transform",
    "batch",
    "prefetch",
    "transport",
    "consumer",
    "balanced",
    "unknown",
]
# The name of the stage in which workers write outputs to shared memory.
SENDING = "writing outputs in workers"
NAME_WIDTH = 60
# Gains of at least this are shown without decimals.
MIN_GAIN_WITHOUT_DECIMALS = 10
# Shorter times per output, in seconds, cannot be measured.
MIN_STAGE_S = 1e-7
# The number of lines of the text before the table of stages.
SUMMARY_LINE_COUNT = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """One node of a chain.

    Attributes:
        name: The node as text.
        kind: "read", "order", "transform", "batch", "prefetch" (waits for threads) or
            "transport" (gets elements from worker processes).
        share: Its share of the time that the consumer waited, from 0 to 1.
        seconds: Its own time per output, in all threads and processes.
        cpu_share: The share of that time in which it computed instead of waiting.
        elements: Elements that it made while it was measured.
        threads: Threads of this process that may compute it; None if it takes no
            threads.
    """

    name: str
    kind: str
    share: float
    seconds: float
    cpu_share: float
    elements: int
    threads: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Buffer:
    """Elements that were ready when the consumer asked for one.

    Attributes:
        name: The node that had them.
        mean: Their average number.
        capacity: Their largest possible number.
    """

    name: str
    mean: float
    capacity: int


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerLoad:
    """One worker process.

    Attributes:
        pid: Its process id.
        node: The address of its machine on a cluster; else empty.
        busy: The share of its time in which it computed elements, from 0 to 1.
        sending_s: Processor time to send one element, in s; on a cluster the time from
            when an element was ready until it arrived.
        elements: Elements that it made.
    """

    pid: int
    busy: float
    sending_s: float
    elements: int
    node: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """A conclusion from the measurements, or the result of a change that was tried.

    Attributes:
        text: The advice.
        gain: Outputs per second with the change, divided by those without it; 1 if the
            advice is to change nothing.
    """

    text: str
    gain: float


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A change that may help and was not tried.

    Attributes:
        text: What to change.
        predicted: The gain if stages take the measured time, and if the resources that
            they wait for have no other limit.
        workers: Worker processes after the change; None for as many as now.
        threads: `ReadOptions.num_threads` after the change; None for as many as now.
    """

    text: str
    predicted: float
    workers: int | None = None
    threads: int | None = None

    @property
    def can_be_tried(self) -> bool:
        """True if ``report(verify=True)`` tries this change."""
        return self.workers is not None or self.threads is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """A change that was tried, with its predicted gain.

    Attributes:
        text: The change.
        predicted: The predicted gain.
        found: The measured gain; None if there were too few outputs to measure it.
    """

    text: str
    predicted: float
    found: float | None

    def __str__(self) -> str:
        found = "too few outputs to tell"
        if self.found is not None:
            found = f"found {_gain_text(self.found)}"
        return f"{self.text}: predicted {_gain_text(self.predicted)}, {found}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Report:
    """A report on the stage that limits the output rate of a chain.

    An output is the result of one ``next``: an element, or a batch of elements.

    Attributes:
        limit: The kind of the stage that limits; "consumer" if elements are mostly
            ready before the consumer asks for them, "balanced" if no stage stands out,
            or "unknown" if too little was measured.
        stage: The name of the stage that limits; None if no stage does.
        seconds: Time that was measured, in s.
        outputs: Outputs in that time.
        outputs_per_s: Outputs per second of the wall clock.
        bytes_per_s: Their approximate size per second; 0 before a size was taken.
        waited: The share of the time that the consumer spent in ``next``, 0 to 1.
        p50_s: The median time of a call of ``next``, in s.
        p95_s: The 95th percentile of that time, in s.
        p99_s: The 99th percentile of that time, in s.
        stages: The nodes, the one that the consumer waits for longest first.
        buffers: Elements that were ready.
        workers: Worker processes.
        advice: Conclusions, and changes that were tried and helped, the best first.
        untried: Changes that may help and were not tried.
        notes: What the report could not measure or try, and why.
        checks: Changes that were tried.
        sources: The name of each source, and what was delivered from it, of a chain
            with several sources or with known numbers of tokens, if that can be counted
            quickly.
        recorded: When each stage ran, if the run was recorded with ``trace=True``.
    """

    limit: Limit
    stage: str | None
    seconds: float
    outputs: int
    outputs_per_s: float
    bytes_per_s: float
    waited: float
    p50_s: float
    p95_s: float
    p99_s: float
    stages: tuple[Stage, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    workers: tuple[WorkerLoad, ...] = ()
    advice: tuple[Advice, ...] = ()
    untried: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    sources: tuple[tuple[str, SourceCount], ...] = ()
    recorded: Trace | None = None

    def __str__(self) -> str:
        p50, p95, p99 = (
            time_text(s * 1e9) for s in (self.p50_s, self.p95_s, self.p99_s)
        )
        size = f", {bytes_text(self.bytes_per_s)}/s" if self.bytes_per_s else ""
        lines = [
            f"Limit: {self.limit}{f', {self.stage}' if self.stage else ''}",
            f"{self.outputs} outputs in {self.seconds:.2f} s:"
            f" {self.outputs_per_s:.1f}/s{size}",
            f"The consumer waited {self.waited:.0%} of the time. next() took {p50}"
            f" (half of the calls), {p95} (95 %), {p99} (99 %).",
        ]
        if self.stages:
            lines.append("  waited for   per output  computing  stage")
        lines += [
            f"  {share:>10} {time:>12} {cpu:>10}  {kind}: {_shortened(name)}"
            for share, time, cpu, kind, name in self._rows()
        ]
        lines += [
            f"Buffer of {_shortened(b.name)}: {b.mean:.1f} of {b.capacity} ready"
            for b in self.buffers
        ]
        lines += [
            f"Worker {w.pid}{w.node and f' on {w.node}'}: busy {w.busy:.0%} of the"
            f" time, {w.elements} elements"
            for w in self.workers
        ]
        lines += [f"Delivered from {name}: {count}" for name, count in self.sources]
        lines += [f"Advice: {advice.text}" for advice in self.advice]
        lines += [f"Check: {check}" for check in self.checks]
        lines += _untried_lines(self.untried)
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(map(printable, lines))

    __repr__ = __str__

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write when each stage ran to a file in Chrome's trace event format.

        https://ui.perfetto.dev and chrome://tracing show it: processes, their threads,
        reads, steps and waits.

        Args:
            path: The file, such as "trace.json"; it is replaced.

        Raises:
            ValueError: The run was not recorded.

        Example:
            >>> loader = gristmill.load(range(1000), batch_size=10)
            >>> report = loader.report(seconds=0.1, trace=True)
            >>> report.trace("trace.json")  # doctest: +SKIP
        """
        if self.recorded is None:
            raise ValueError(
                "trace() needs a report with recorded intervals, got one without. Call"
                " report(trace=True) of a dataset or a loader."
            )
        self.recorded.write(path)

    def metrics(self) -> dict[str, float]:
        """Return numbers of the report, to log them while you train.

        Returns:
            ``data/outputs_per_s``, ``data/bytes_per_s``, ``data/waited`` (a share),
            ``data/p50_s``, ``data/p95_s`` and ``data/p99_s`` of ``next``; with workers
            ``data/workers`` and ``data/workers_busy`` (the mean share); and for each of
            `sources`, ``data/NAME/elements``, and ``tokens`` and ``epochs`` if known.

        Example:
            >>> report = gristmill.load(range(1000), batch_size=10).report(seconds=0.1)
            >>> report.metrics()["data/outputs_per_s"] == report.outputs_per_s
            True
        """
        names = ["outputs_per_s", "bytes_per_s", "waited", "p50_s", "p95_s", "p99_s"]
        metrics: dict[str, float] = {
            f"data/{name}": getattr(self, name) for name in names
        }
        if self.workers:
            busy = sum(worker.busy for worker in self.workers)
            metrics["data/workers"] = len(self.workers)
            metrics["data/workers_busy"] = busy / len(self.workers)
        for source, count in self.sources:
            for unit in ("elements", "tokens", "epochs"):
                number = getattr(count, unit)
                if number is not None:
                    metrics[f"data/{source}/{unit}"] = number
        return metrics

    def _repr_html_(self) -> str:
        lines = str(dataclasses.replace(self, stages=())).split("\n")
        texts = [f"<p>{html.escape(line)}</p>\n" for line in lines]
        texts.insert(SUMMARY_LINE_COUNT, self._html_table())
        return f"<div>\n{''.join(texts)}</div>\n"

    def _rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the table of stages, in rows."""
        return [
            (
                f"{stage.share:.1%}",
                _stage_time(stage.seconds),
                f"{stage.cpu_share:.0%}",
                stage.kind,
                stage.name,
            )
            for stage in self.stages
        ]

    def _html_table(self) -> str:
        if not self.stages:
            return ""
        heads = ("waited for", "per output", "computing", "does", "stage")
        body = "".join(_html_row("td", row) for row in self._rows())
        return (
            f"<table>\n<thead>\n{_html_row('th', heads)}</thead>\n"
            f"<tbody>\n{body}</tbody>\n</table>\n"
        )


def _untried_lines(changes: Sequence[Change]) -> list[str]:
    tried = "; ".join(change.text for change in changes if change.can_be_tried)
    lines = [f"Untried: {tried}. report(verify=True) measures it."] if tried else []
    manual = [change.text for change in changes if not change.can_be_tried]
    return lines + [f"Untried: {text}." for text in manual]


def _stage_time(seconds: float) -> str:
    """Return a duration as text, "<0.1us" if it is too short to be measured."""
    return time_text(seconds * 1e9) if seconds >= MIN_STAGE_S else "<0.1us"


def _gain_text(gain: float) -> str:
    return f"{gain:.2f}x" if gain < MIN_GAIN_WITHOUT_DECIMALS else f"{gain:.0f}x"


def _html_row(tag: str, cells: Sequence[str]) -> str:
    row = "".join(f"<{tag}>{html.escape(printable(cell))}</{tag}>" for cell in cells)
    return f"<tr>{row}</tr>\n"


def _shortened(name: str) -> str:
    if len(name) <= NAME_WIDTH:
        return name
    half = NAME_WIDTH // 2
    return f"{name[: half - 2]}...{name[-half + 1 :]}"
