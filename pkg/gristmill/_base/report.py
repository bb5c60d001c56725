"""What a report says of a chain of datasets, in fields and in words."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from typing import Literal

from gristmill._base.describing import printable
from gristmill._base.quantities import bytes_text, time_text

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
# What a worker does with an output before another process has it.
SENDING = "writing outputs in workers"
NAME_WIDTH = 60
# So many times as fast need no digits behind the point.
MANY_TIMES = 10
# A stage that takes less than this for an output is too short to be measured.
LEAST_S = 1e-7
# Lines of the text above the stages.
HEADLINES = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """One node of a chain.

    Attributes:
        name: The node as text.
        kind: What it does: "read", "order", "transform", "batch", "prefetch" (waits
            for threads) or "transport" (gets elements from worker processes).
        share: Its part of what the consumer waited for, from 0 to 1.
        seconds: Its own time for one output, in all threads and processes.
        cpu_share: The part of that in which it computed rather than waited.
        elements: Elements that it made, of those that were measured.
        threads: How many threads of this process may compute it; None where none
            can be asked for.
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
    """Elements that were ready when one was asked for.

    Attributes:
        name: Whose they were.
        mean: How many, on the average.
        capacity: How many there may be at most.
    """

    name: str
    mean: float
    capacity: int


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerLoad:
    """One worker process.

    Attributes:
        pid: Its number.
        node: The address of its machine, where it is on a cluster.
        busy: The part of its time in which it computed elements, from 0 to 1.
        sending_s: Processor time that sending one took, in s; on a cluster the time
            in which one that was ready was on its way.
        elements: Elements that it made.
    """

    pid: int
    busy: float
    sending_s: float
    elements: int
    node: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """What follows from what was measured, or what a change gave that was tried.

    Attributes:
        text: What.
        gain: How many times as many outputs a second the change gave; 1 if the advice
            is not to change anything.
    """

    text: str
    gain: float


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A change that may help, and that was not tried.

    Attributes:
        text: What to change.
        predicted: How many times as many outputs a second it gives if stages take the
            time that was measured, and if what they wait for has no limit of its own.
        workers: How many worker processes there are then; None for as many as now.
        threads: `ReadOptions.num_threads` then; None for as many as now.
    """

    text: str
    predicted: float
    workers: int | None = None
    threads: int | None = None

    @property
    def can_be_tried(self) -> bool:
        """Whether ``report(verify=True)`` tries it."""
        return self.workers is not None or self.threads is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """Something that was predicted, and tried.

    Attributes:
        text: What was tried.
        predicted: How many times as many outputs a second that should give.
        found: How many it gave; None where too few outputs came to tell.
    """

    text: str
    predicted: float
    found: float | None

    def __str__(self) -> str:
        found = "too few outputs to tell"
        if self.found is not None:
            found = f"found {_times(self.found)}"
        return f"{self.text}: predicted {_times(self.predicted)}, {found}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Report:
    """Which stage of a chain limits how fast it gives elements out.

    An output is what ``next`` returns: an element, or a batch of them.

    Attributes:
        limit: What limits: the kind of a stage, "consumer" where elements are mostly
            ready before they are asked for, "balanced" where no stage stands out, or
            "unknown" where too little was measured.
        stage: The name of the stage that limits; None where none does.
        seconds: How long was measured, in s.
        outputs: How many were given out in that time.
        outputs_per_s: Outputs per second of the wall clock.
        bytes_per_s: Their size a second, about; 0 before a size was taken.
        waited: The part of the time that the consumer spent in ``next``, 0 to 1.
        p50_s: Half of the calls of ``next`` took at most so long, in s.
        p95_s: As well, 95 %.
        p99_s: As well, 99 %.
        stages: The nodes; those that are waited for longest come first.
        buffers: Elements that were ready.
        workers: Worker processes.
        advice: What is certain, and what helped of the changes that were tried, the
            best first.
        untried: Changes that may help, and that were not tried.
        notes: What was not measured, or not tried.
        checks: What was tried, where that was asked for.
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
            f"  {share:>10} {each:>12} {cpu:>10}  {kind}: {_short(name)}"
            for share, each, cpu, kind, name in self._rows()
        ]
        lines += [
            f"Buffer of {_short(b.name)}: {b.mean:.1f} of {b.capacity} ready"
            for b in self.buffers
        ]
        lines += [
            f"Worker {w.pid}{w.node and f' on {w.node}'}: busy {w.busy:.0%} of the"
            f" time, {w.elements} elements"
            for w in self.workers
        ]
        lines += [f"Advice: {advice.text}" for advice in self.advice]
        lines += [f"Check: {check}" for check in self.checks]
        lines += _untried_lines(self.untried)
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(map(printable, lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lines = str(dataclasses.replace(self, stages=())).split("\n")
        texts = [f"<p>{html.escape(line)}</p>\n" for line in lines]
        texts.insert(HEADLINES, self._table())
        return f"<div>\n{''.join(texts)}</div>\n"

    def _rows(self) -> list[tuple[str, ...]]:
        """Of each stage: waited for, per output, computing, does, stage."""
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

    def _table(self) -> str:
        if not self.stages:
            return ""
        heads = ("waited for", "per output", "computing", "does", "stage")
        body = "".join(_row("td", row) for row in self._rows())
        return (
            f"<table>\n<thead>\n{_row('th', heads)}</thead>\n"
            f"<tbody>\n{body}</tbody>\n</table>\n"
        )


def _untried_lines(changes: Sequence[Change]) -> list[str]:
    tried = "; ".join(change.text for change in changes if change.can_be_tried)
    lines = [f"Untried: {tried}. report(verify=True) measures it."] if tried else []
    rest = [change.text for change in changes if not change.can_be_tried]
    return lines + [f"Untried: {text}." for text in rest]


def _stage_time(seconds: float) -> str:
    """Return a duration as text, "<0.1us" if it is too short to be measured."""
    return time_text(seconds * 1e9) if seconds >= LEAST_S else "<0.1us"


def _times(gain: float) -> str:
    return f"{gain:.2f}x" if gain < MANY_TIMES else f"{gain:.0f}x"


def _row(tag: str, cells: Sequence[str]) -> str:
    row = "".join(f"<{tag}>{html.escape(printable(cell))}</{tag}>" for cell in cells)
    return f"<tr>{row}</tr>\n"


def _short(name: str) -> str:
    if len(name) <= NAME_WIDTH:
        return name
    half = NAME_WIDTH // 2
    return f"{name[: half - 2]}...{name[-half + 1 :]}"
