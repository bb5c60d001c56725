"""Checks the predictions of a report by short runs of the pipeline.

Each kind of pipeline has a `Trial`, which makes new iterators over a copy of it.  They
are closed after their run; the user's iterator keeps its position.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import operator
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from gristmill._base.report import Change, Check, Report
from gristmill._base.trials import NotTriedError
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.node import chain_of, with_parents
from gristmill._dataset.model.observer import suppress_observation
from gristmill._dataset.model.states import copy_state
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._dataset.parallel.process_prefetch import ProcessPrefetchIterDataset
from gristmill._observe import generators
from gristmill._observe.cached_run import cached_run
from gristmill._observe.diagnosis import add_advice, predicted_gain, ready_gain
from gristmill._observe.timed_run import RunTimes, check_seconds, run_for
from gristmill.options import MultiprocessingOptions, ReadOptions

# The maximum number of outputs in a cache, and of their bytes.
MAX_CACHED = 4
MAX_CACHED_BYTES = 64 << 20
# Data that ends early is read at most this number of times.
MAX_ROUNDS = 3
# Fewer outputs are too few to compare.
MIN_OUTPUTS = 3
# A sleep takes longer than this, so it cannot replace a faster consumer.
MIN_SLEEP_S = 50e-6


class Trial(Protocol):
    """Makes iterators over a copy of a pipeline.

    Attributes:
        workers: The number of processes that compute; 0 for none.
    """

    workers: int

    def open(
        self, extra_workers: int, from_position: bool, threads: int | None = None
    ) -> Iterator[Any]:
        """Return a new iterator.

        Args:
            extra_workers: The number of workers to add; negative to remove some.
            from_position: Whether to begin at the position of the user's iterator, if
                possible.
            threads: The number of threads that read ahead in this process; None for
                the present number.

        Raises:
            NotTriedError: No such iterator can be made; the text gives the reason.
        """

    def close(self, iterator: Any) -> None:
        """End the threads and workers of an iterator."""

    def encode_output(self, output: Any) -> Any:
        """Return an output in the form that workers send."""
        return output

    def decode_output(self, sent: Any) -> Any:
        """Return the output that was passed to `encode_output`."""
        return sent


@generators.restore_generators()
def verify_report(
    report: Report,
    trial: Trial,
    seconds: float,
    consume: Callable[[Any], Any] | None,
) -> Report:
    """Add checks of a report's predictions, and the advice that follows, to it.

    Args:
        report: The report of the pipeline as it is.
        trial: Makes iterators over the pipeline.
        seconds: The duration of each run, in s: one of the pipeline as it is, one from
            a cache, one with one more worker, and one for each change that may help.
        consume: Called with each output; None to wait as long as was measured.
    """
    check_seconds(seconds)
    if not report.outputs:
        return _add_note(report, "no output has been timed.")
    consumer_s = report.seconds / report.outputs * (1 - report.waited)
    consume = consume or _simulate_consumer(consumer_s)
    workers = trial.workers
    cached: list[Any] = []
    try:
        baseline = _run_trial(trial, 0, seconds, consume, cached)
        checks = [
            *_check_ready_outputs(report, trial, seconds, consume, baseline, cached)
        ]
    except Exception as error:  # Data that the user has not read yet may fail.
        return _add_note(report, _describe_error(error))
    one_more = Change(
        f"one more worker ({workers + 1})",
        predicted_gain(report, workers + 1),
        workers + 1,
    )
    gains = []
    for change in (one_more, *report.untried):
        is_one_more = (change.workers, change.threads) == (workers + 1, None)
        # The report may have the same change as `one_more`; try it once.
        if not change.can_be_tried or (is_one_more and change is not one_more):
            continue
        extra_workers = 0 if change.workers is None else change.workers - workers
        try:
            times = _run_trial(
                trial, extra_workers, seconds, consume, threads=change.threads
            )
        except Exception as error:  # Any error shows that the change cannot be tried.
            report = _add_note(report, f"{change.text}, since {_describe_error(error)}")
            continue
        check = _check(change.text, change.predicted, baseline, times)
        checks.append(check)
        if check.found is not None:
            gains.append((change, check.found))
    return add_advice(dataclasses.replace(report, checks=tuple(checks)), gains)


def _describe_error(error: Exception) -> str:
    """Return in one line why something was not tried."""
    if isinstance(error, NotTriedError):
        return str(error)
    return f"{type(error).__name__}: {error}".split("\n")[0]


def _run_trial(
    trial: Trial,
    extra_workers: int,
    seconds: float,
    consume: Callable[[Any], Any] | None,
    cached: list[Any] | None = None,
    threads: int | None = None,
) -> RunTimes:
    """Return the times of a run with more workers or other threads.

    Appends the first outputs to `cached`, if it is a list.
    """

    def consume_and_cache(output: Any) -> None:
        if cached is not None and len(cached) < MAX_CACHED:
            cached.append(output)
        if consume is not None:
            consume(output)

    times = RunTimes([], 0.0, 0, 0, 0.0)
    for round_number in range(MAX_ROUNDS):
        remaining_s = seconds - times.seconds
        if remaining_s <= 0:
            break
        iterator = trial.open(extra_workers, round_number == 0, threads)
        run = run_for(iterator, remaining_s, consume_and_cache, trial.close)
        times = RunTimes(
            times.waits_s + run.waits_s,
            times.consumer_s + run.consumer_s,
            run.bytes_per_output or times.bytes_per_output,
            times.outputs + run.outputs,
            times.seconds + run.seconds,
        )
        # From the beginning, the data has at most one output, which is not timed.
        if round_number and not run.outputs:
            break
    return times


def _check_ready_outputs(
    report: Report,
    trial: Trial,
    seconds: float,
    consume: Callable[[Any], Any] | None,
    baseline: RunTimes,
    cached: list[Any],
) -> Iterator[Check]:
    """Check the gain that outputs from a cache give.

    With workers, they send the outputs, so the check includes the transfer.
    """
    workers = trial.workers
    predicted = ready_gain(report)
    if (
        not cached
        or predicted is None
        or baseline.bytes_per_output * len(cached) > MAX_CACHED_BYTES
    ):
        return
    if not workers:
        times = run_for(itertools.cycle(cached), seconds, consume, lambda _: None)
    else:
        run = cached_run(tuple(map(trial.encode_output, cached)), workers)
        copied = (trial.decode_output(run.next()) for _ in itertools.count())
        times = run_for(copied, seconds, consume, lambda _: run.close())
    yield _check("outputs from a cache", predicted, baseline, times)


def _check(text: str, predicted: float, before: RunTimes, after: RunTimes) -> Check:
    """Return the check of a change's predicted gain, from runs without and with it."""
    is_comparable = min(before.outputs, after.outputs) >= MIN_OUTPUTS
    gain = after.rate / before.rate if is_comparable and before.rate else None
    return Check(text, predicted, gain)


def _simulate_consumer(consumer_s: float) -> Callable[[Any], Any] | None:
    """Return a function that waits as long as the consumer took for an output."""
    if consumer_s < MIN_SLEEP_S:
        return None
    return lambda _: time.sleep(consumer_s)


def _add_note(report: Report, reason: str) -> Report:
    notes = (*report.notes, f"Not tried: {reason}")
    return dataclasses.replace(report, notes=notes)


class ChainTrial(Trial):
    """A `Trial` of a chain of datasets.

    Args:
        dataset: The chain's last node.
        iterator: The user's iterator, whose state is taken; None for the beginning.
    """

    def __init__(self, dataset: Any, iterator: DatasetIterator[Any] | None) -> None:
        self._dataset = dataset = _with_own_workers(dataset)
        self._state = None
        if iterator is not None:
            with contextlib.suppress(TypeError):  # Then runs start at the beginning.
                self._state = copy_state(iterator.get_state())
        is_last = isinstance(dataset, ProcessPrefetchIterDataset)
        self.workers = dataset.worker_count if is_last else 0
        if is_last and dataset.has_auto_workers:  # Runs compare fixed numbers.
            self._dataset, _ = dataset.with_workers(self.workers)
        # True if another node than the last one has workers.
        self._has_inner_workers = not is_last and any(
            node._KIND == "transport" for node in chain_of(dataset)
        )

    def open(
        self, extra_workers: int, from_position: bool, threads: int | None = None
    ) -> Iterator[Any]:
        dataset, state = self._dataset, self._state if from_position else None
        if threads is not None:
            dataset = _with_threads(dataset, threads)
        if extra_workers and self._has_inner_workers:
            raise NotTriedError("`mp_prefetch` is not the last node of the chain.")
        if extra_workers and self.workers:
            dataset, restores_state = dataset.with_workers(self.workers + extra_workers)
            state = state if restores_state else None
        elif extra_workers:
            # The state is of a chain without workers, so begin at the beginning.
            options = MultiprocessingOptions(num_workers=extra_workers)
            dataset, state = dataset.mp_prefetch(options), None
        with suppress_observation():
            iterator: DatasetIterator[Any] = iter(dataset)
        if state is not None:
            iterator.set_state(state)
        return iterator

    def close(self, iterator: Any) -> None:
        iterator.close()


def _with_own_workers(dataset: Any) -> Any:
    """Return a chain without the workers that only one iterator can use.

    Returns `dataset` if it has none.
    """
    if not getattr(getattr(dataset, "_backend", None), "allows_copies", True):
        copied = copy.copy(dataset)
        copied._backend = None
        return copied
    parents = [_with_own_workers(parent) for parent in dataset._parents]
    if all(map(operator.is_, parents, dataset._parents)):
        return dataset
    return with_parents(dataset, parents)


def _with_threads(dataset: Any, threads: int) -> Any:
    """Return a copy of a chain in which `threads` threads read by index."""
    if isinstance(dataset, PrefetchIterDataset):
        copied = copy.copy(dataset)
        options = dataset._read_options
        copied._read_options = ReadOptions(
            num_threads=threads,
            prefetch_buffer_size=max(options.prefetch_buffer_size, threads),
        )
        return copied
    if dataset._KIND == "transport" or not dataset._parents:
        return dataset
    parents = [_with_threads(parent, threads) for parent in dataset._parents]
    return with_parents(dataset, parents)
