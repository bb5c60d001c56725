"""Runs questions: contestants, targets, and one process per measurement.

A ``bench_<question>.py`` makes a ``Question`` and ends with ``main(QUESTION)``. Run as
a script, it measures every contestant and prints its table. With ``--contestant`` it
measures one and prints JSON; ``run.py`` uses this to keep processes apart.
"""

import argparse
import dataclasses
import gc
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from workloads import Answer, Workload, answer

OURS = "gristmill"
GRAIN = ("grain default", "grain (0, 0)")
TIMEOUT_S = 600


@dataclasses.dataclass(frozen=True)
class Settings:
    """The duration of measurements. ``records`` overrides a data set's size."""

    quick: bool = False
    records: int | None = None

    @property
    def seconds(self) -> float:
        """Length of the timed part, in seconds."""
        return 0.25 if self.quick else 1.0


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One contestant's result in the question's unit; lower is better.

    ``answers`` maps the name of a check to a digest. All contestants that made the same
    check must have the same digest. ``series`` is the data to plot from a run: pairs of
    x and y.
    """

    value: float
    answers: dict[str, str] = dataclasses.field(default_factory=dict)
    series: list[tuple[float, float]] = dataclasses.field(default_factory=list)


def format_figure(ratio: float) -> str:
    """Returns a figure with three digits, never as a power of ten."""
    return f"{ratio:,.0f}" if abs(ratio) >= 100 else f"{ratio:.3g}"


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """Speed over the best of some peers: ``peer / ours >= times``."""

    times: float
    peers: tuple[str, ...]
    ours: str = OURS

    def __str__(self) -> str:
        faster = " or ".join(self.peers)
        return f"{self.ours} >= {self.times:g}x as fast as {faster}"

    def figure_of(self, values: dict[str, float]) -> float:
        """Returns the ratio; raises KeyError when a median is missing."""
        return min(values[peer] for peer in self.peers) / values[self.ours]

    def passes(self, figure: float) -> bool:
        return figure >= self.times


@dataclasses.dataclass(frozen=True)
class AtMost:
    """A bound on ours, absolute or as a multiple of another contestant."""

    limit: float
    than: str | None = None
    ours: str = OURS

    def __str__(self) -> str:
        times = f"x {self.than}" if self.than else ""
        return f"{self.ours} <= {self.limit:g}{times}"

    def figure_of(self, values: dict[str, float]) -> float:
        """Returns the value or ratio; raises KeyError when a median is missing."""
        return values[self.ours] / (values[self.than] if self.than else 1.0)

    def passes(self, figure: float) -> bool:
        return figure <= self.limit


class Verdict(NamedTuple):
    """A row of the table of targets.

    Attributes:
        target: The target in words.
        figure: The measured value or ratio; "-" if a median is missing.
        text: "pass", "FAIL", or the contestant that was not measured.
    """

    target: str
    figure: str
    text: str

    @property
    def is_pass(self) -> bool:
        return self.text == "pass"


@dataclasses.dataclass(frozen=True)
class Question:
    """One row of the table.

    Args:
        name: The ``<question>`` of ``bench_<question>.py``.
        text: The question in words.
        unit: Unit of every value.
        contestants: Measures one contestant, by name; ours first.
        targets: What the medians must satisfy.
    """

    name: str
    text: str
    unit: str
    contestants: dict[str, Callable[[Settings], Measurement]]
    targets: tuple[AtLeast | AtMost, ...]


def seconds_per_batch(
    batches: Iterator[Any],
    seconds: float,
    use: Callable[[Any], Any] | None = None,
    warm: int = 8,
    at_least: int = 8,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Returns the mean ``clock`` seconds of one batch in steady state.

    Args:
        batches: Yields batches without end.
        seconds: The least wall time to measure.
        use: Called with each batch, like a consumer.
        warm: The number of batches before the measurement.
        at_least: The least number of batches to measure.
        clock: Returns the time to measure, in seconds.
    """
    for _ in range(warm):
        batch = next(batches)
        if use is not None:
            use(batch)
    count = 0
    deadline = time.perf_counter() + seconds
    start = clock()
    while count < at_least or time.perf_counter() < deadline:
        batch = next(batches)
        count += 1
        if use is not None:
            use(batch)
    return (clock() - start) / count


def throughput(
    load: Callable[[Workload], Iterator[Any]],
    work: Workload,
    checked_source: Any,
    settings: Settings,
    *,
    in_order: bool,
    use: Callable[[Any], Any] | None = None,
    warm: int = 8,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, dict[str, str]]:
    """Checks one epoch of a small source, then times the endless large one.

    Returns the seconds per batch and the answers. ``in_order`` means that the
    contestant promises Grain's order, so its answer includes the order.
    """
    digests: Answer = answer(load(work.once(checked_source)))
    answers = {"records": digests.records}
    if in_order:
        answers["stream"] = digests.stream
    gc.collect()
    batches = load(work)
    try:
        seconds = seconds_per_batch(batches, settings.seconds, use, warm, clock=clock)
        return seconds, answers
    finally:
        del batches
        gc.collect()


def _environment(package: pathlib.Path | None) -> dict[str, str]:
    # Without byte code on disk, an import would measure Python's compiler.
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    return environment


def measure(
    question: Question,
    contestant: str,
    settings: Settings,
    package: pathlib.Path | None = None,
) -> Measurement:
    """Measures one contestant in a fresh process.

    Args:
        question: The question.
        contestant: The name of one of its contestants.
        settings: How long to measure.
        package: A folder that contains Gristmill; None for the installed one.

    Raises:
        RuntimeError: The process failed or took more than 600 s; the message
            ends with the last line of its output.
    """
    script = pathlib.Path(__file__).with_name(f"bench_{question.name}.py")
    command = [sys.executable, str(script), "--contestant", contestant]
    if settings.quick:
        command.append("--quick")
    if settings.records is not None:
        command += ["--records", str(settings.records)]
    child = subprocess.Popen(
        command,
        env=_environment(package),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # The session also has the workers that the contestant started.
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise RuntimeError(f"no result within {TIMEOUT_S} s") from None
    for line in output.splitlines():
        if line.startswith("{"):
            return Measurement(**json.loads(line))
    last_line = (errors.strip().splitlines() or ["no output"])[-1]
    raise RuntimeError(f"exit code {child.returncode}: {last_line}")


@dataclasses.dataclass
class Outcome:
    """All runs of one question.

    Args:
        question: The question.
        runs: The results of each contestant.
        failures: The reason if a contestant has fewer results.
        disagreements: The answers that differ.
        series: The series of each contestant's last run, if it has one.
        about: Date, machine, versions and command of the measurement.
    """

    question: Question
    runs: dict[str, list[float]]
    failures: dict[str, str] = dataclasses.field(default_factory=dict)
    disagreements: list[str] = dataclasses.field(default_factory=list)
    series: dict[str, list[tuple[float, float]]] = dataclasses.field(
        default_factory=dict
    )
    about: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def medians(self) -> dict[str, float]:
        return {name: statistics.median(v) for name, v in self.runs.items() if v}

    def verdicts(self) -> list[Verdict]:
        """Returns the verdict on each target."""
        verdicts = []
        for target in self.question.targets:
            is_ratio = isinstance(target, AtLeast) or target.than
            text = f"{target}" if is_ratio else f"{target} {self.question.unit}"
            try:
                figure = target.figure_of(self.medians)
            except KeyError as missing:
                reason = f"not measured: {missing.args[0]}"
                verdicts.append(Verdict(text, "-", reason))
                continue
            passed = target.passes(figure) and not self.disagreements
            verdict = "pass" if passed else "FAIL"
            verdicts.append(Verdict(text, format_figure(figure), verdict))
        return verdicts


def measure_contestants(
    question: Question, settings: Settings, repeats: int, skip: str | None = None
) -> Outcome:
    """Measures the contestants ``repeats`` times, in turn, and compares answers.

    Contestants whose name begins with ``skip`` are left out.
    """
    names = [n for n in question.contestants if not skip or not n.startswith(skip)]
    outcome = Outcome(question, {name: [] for name in names})
    # For each check, the first contestant that made it, and its digest.
    first_answers: dict[str, tuple[str, str]] = {}
    for _ in range(repeats):
        for name in names:
            if name in outcome.failures:
                continue
            try:
                result = measure(question, name, settings)
            except RuntimeError as error:
                outcome.failures[name] = str(error)
                continue
            for check, digest in result.answers.items():
                first, expected = first_answers.setdefault(check, (name, digest))
                if digest != expected:
                    outcome.disagreements.append(
                        f"{check}: {name} got {digest}, {first} got {expected}"
                    )
            outcome.runs[name].append(result.value)
            if result.series:
                outcome.series[name] = result.series
    return outcome


def table(outcome: Outcome) -> str:
    """Returns the outcome as text: contestants first, then targets."""
    question = outcome.question
    lines = [f"### {question.name}: {question.text}", ""]
    lines += [f"| contestant | {question.unit} (median) | all runs |", "|---|---|---|"]
    for name, values in outcome.runs.items():
        if values:
            all_runs = " ".join(f"{value:.4g}" for value in values)
            lines.append(f"| {name} | {outcome.medians[name]:.4g} | {all_runs} |")
        else:
            lines.append(f"| {name} | - | {outcome.failures.get(name, '-')} |")
    lines += ["", "| target | found | verdict |", "|---|---|---|"]
    lines += [f"| {' | '.join(verdict)} |" for verdict in outcome.verdicts()]
    lines += [f"\nAnswers differ. {text}" for text in outcome.disagreements]
    return "\n".join(lines) + "\n"


def main(question: Question) -> None:
    """Run the command line of a ``bench_<question>.py``."""
    parser = argparse.ArgumentParser(description=question.text)
    parser.add_argument("--contestant", choices=list(question.contestants))
    parser.add_argument("--quick", action="store_true", help="shorter timed parts")
    parser.add_argument("--records", type=int, help="size of the data set")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    settings = Settings(options.quick, options.records)
    if options.contestant is None:
        print(table(measure_contestants(question, settings, options.repeats)))
        return
    result = question.contestants[options.contestant](settings)
    print(json.dumps(dataclasses.asdict(result)), flush=True)
