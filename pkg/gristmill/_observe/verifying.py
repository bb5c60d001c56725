"""Checks what a report predicts, by running the pipeline for a short time.

Each face of a pipeline has a `Trial`, which makes fresh iterators over a copy of it.
Those of their own are closed afterwards; whoever asked keeps their position.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from gristmill._base.report import Change, Check, Report
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.node import chain_of, with_parents
from gristmill._dataset.model.observer import as_inner
from gristmill._dataset.model.states import copied
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._dataset.parallel.process_prefetch import ProcessPrefetchIterDataset
from gristmill._engine.trial import NotTriedError, cached_run
from gristmill._observe import generators
from gristmill._observe.diagnosis import advised, predicted_gain, ready_gain
from gristmill._observe.running import Took, check_seconds, run_for
from gristmill.options import MultiprocessingOptions, ReadOptions

# Outputs that are kept for a cache, and their size in all.
KEPT = 4
KEPT_BYTES = 64 << 20
# Data that ends early is begun again so often.
MOST_ROUNDS = 3
# With fewer outputs nothing is told.
ENOUGH = 3
# A consumer that is away for less is not stood in for.
SHORTEST_S = 50e-6


class Trial(Protocol):
    """Makes iterators over a copy of a pipeline.

    Attributes:
        workers: How many processes compute; 0 for none.
    """

    workers: int

    def open(self, more: int, here: bool, threads: int | None = None) -> Iterator[Any]:
        """Return a fresh iterator.

        Args:
            more: How many more workers compute than there are; negative for fewer.
            here: Whether it begins where the user's iterator stands, if it can.
            threads: How many threads read ahead in this process; None for as many as
                there are.

        Raises:
            NotTriedError: There can be none; its text says why.
        """

    def close(self, iterator: Any) -> None:
        """End what it has."""

    def packed(self, output: Any) -> Any:
        """An output as workers send it."""

    def unpacked(self, sent: Any) -> Any:
        """The output that was sent so."""


@generators.put_back()
def verified(
    report: Report,
    trial: Trial,
    seconds: float,
    consume: Callable[[Any], Any] | None,
) -> Report:
    """Add to a report what came of trying what it predicts.

    Args:
        report: Of the pipeline as it is.
        trial: Makes iterators over it.
        seconds: How long each run takes, in s: one of the pipeline as it is, one from
            a cache, one with one more worker, and one for each change that may help.
        consume: What is done with each output; None to wait as long as was measured.
    """
    check_seconds(seconds)
    if not report.outputs:
        return _told(report, "no output has been timed.")
    away_s = report.seconds / report.outputs * (1 - report.waited)
    consume = consume or _stand_in(away_s)
    have = trial.workers
    kept: list[Any] = []
    try:
        now = _tried(trial, 0, seconds, consume, kept)
        checks = [*_ready(report, trial, seconds, consume, now, kept)]
    except Exception as error:  # Data may fail that nobody has asked for yet.
        return _told(report, _reason(error))
    one_more = Change(
        f"one more worker ({have + 1})", predicted_gain(report, have + 1), have + 1
    )
    found = []
    for change in (one_more, *report.untried):
        same = (change.workers, change.threads) == (one_more.workers, one_more.threads)
        if not change.can_be_tried or (same and change is not one_more):
            continue
        more = 0 if change.workers is None else change.workers - have
        try:
            took = _tried(trial, more, seconds, consume, threads=change.threads)
        except Exception as error:  # Whatever keeps it from running there.
            report = _told(report, f"{change.text}, since {_reason(error)}")
            continue
        check = _check(change.text, change.predicted, now, took)
        checks.append(check)
        if check.found is not None:
            found.append((change, check.found))
    return advised(dataclasses.replace(report, checks=tuple(checks)), found)


def _reason(error: Exception) -> str:
    """Why something was not tried, in a line."""
    if isinstance(error, NotTriedError):
        return str(error)
    return f"{type(error).__name__}: {error}".split("\n")[0]


def _tried(
    trial: Trial,
    more: int,
    seconds: float,
    consume: Callable[[Any], Any] | None,
    kept: list[Any] | None = None,
    threads: int | None = None,
) -> Took:
    """Run with more workers or other threads; keep the first outputs, if wanted."""

    def use(output: Any) -> None:
        if kept is not None and len(kept) < KEPT:
            kept.append(output)
        if consume is not None:
            consume(output)

    took = Took([], 0.0, 0, 0, 0.0)
    for number in range(MOST_ROUNDS):
        left = seconds - took.seconds
        if left <= 0:
            break
        iterator = trial.open(more, number == 0, threads)
        found = run_for(iterator, left, use, trial.close)
        took = Took(
            took.waits_s + found.waits_s,
            took.away_s + found.away_s,
            found.bytes_each or took.bytes_each,
            took.outputs + found.outputs,
            took.seconds + found.seconds,
        )
        if number and not found.outputs:
            break
    return took


def _ready(
    report: Report,
    trial: Trial,
    seconds: float,
    consume: Callable[[Any], Any] | None,
    now: Took,
    kept: list[Any],
) -> Iterator[Check]:
    """What the consumer, and the way to it, could take if all outputs were ready."""
    have = trial.workers
    predicted = ready_gain(report)
    if not kept or predicted is None or now.bytes_each * len(kept) > KEPT_BYTES:
        return
    if not have:
        took = run_for(itertools.cycle(kept), seconds, consume, lambda _: None)
    else:
        run = cached_run(tuple(map(trial.packed, kept)), have)
        made = (trial.unpacked(run.next()) for _ in itertools.count())
        took = run_for(made, seconds, consume, lambda _: run.close())
    yield _check("outputs from a cache", predicted, now, took)


def _check(text: str, predicted: float, before: Took, after: Took) -> Check:
    enough = min(before.outputs, after.outputs) >= ENOUGH
    found = after.rate / before.rate if enough and before.rate else None
    return Check(text, predicted, found)


def _stand_in(away_s: float) -> Callable[[Any], Any] | None:
    """Waits as long as the consumer was away."""
    if away_s < SHORTEST_S:
        return None
    return lambda _: time.sleep(away_s)


def _told(report: Report, why: str) -> Report:
    return dataclasses.replace(report, notes=(*report.notes, f"Not tried: {why}"))


class ChainTrial:
    """A `Trial` of a chain of datasets.

    Args:
        dataset: Its last node.
        iterator: The user's, of which only the state is asked; None for the beginning.
    """

    def __init__(self, dataset: Any, iterator: DatasetIterator[Any] | None) -> None:
        self._dataset = dataset
        self._state = None
        if iterator is not None:
            with contextlib.suppress(TypeError):  # Else runs start at the beginning.
                self._state = copied(iterator.get_state())
        is_last = isinstance(dataset, ProcessPrefetchIterDataset)
        self.workers = dataset.workers if is_last else 0
        self._nested = not is_last and any(
            node._KIND == "transport" for node in chain_of(dataset)
        )

    def open(self, more: int, here: bool, threads: int | None = None) -> Iterator[Any]:
        dataset, state = self._dataset, self._state if here else None
        if threads is not None:
            dataset = _with_threads(dataset, threads)
        if more and self._nested:
            raise NotTriedError("`mp_prefetch` is not the last node of the chain.")
        if more and self.workers:
            dataset, goes_on = dataset.with_workers(self.workers + more)
            state = state if goes_on else None
        elif more:
            options = MultiprocessingOptions(num_workers=more)
            dataset, state = dataset.mp_prefetch(options), None
        with as_inner():
            iterator: DatasetIterator[Any] = iter(dataset)
        if state is not None:
            iterator.set_state(state)
        return iterator

    def close(self, iterator: Any) -> None:
        iterator.close()

    def packed(self, output: Any) -> Any:
        return output

    def unpacked(self, sent: Any) -> Any:
        return sent


def _with_threads(dataset: Any, threads: int) -> Any:
    """A copy of a chain in which so many threads of this process read by index."""
    if isinstance(dataset, PrefetchIterDataset):
        made = copy.copy(dataset)
        options = dataset._read_options
        made._read_options = ReadOptions(
            num_threads=threads,
            prefetch_buffer_size=max(options.prefetch_buffer_size, threads),
        )
        return made
    if dataset._KIND == "transport" or not dataset._parents:
        return dataset
    parents = [_with_threads(parent, threads) for parent in dataset._parents]
    return with_parents(dataset, parents)
