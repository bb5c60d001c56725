"""Measures the cost of the times that iterators record for `iterator.report()`.

Prints % of processor time; lower is better. ``range(10M).shuffle.map(x + 1)`` in
batches of 256 is compared with the same without the timing of some calls and blocks.
"single" is without batches. Both iterators take turns of a few milliseconds, so that
other load on the machine affects both. Work done once in a while is done as often as if
the turns of the other iterator were its own, so it counts about twice.

"loader" is a `DataLoader` of the same pipeline with a worker, "torch" torch's loader
with a worker over a dataset of tensors, in batches of 64. Each is compared with a
loader that times nothing, neither here nor in its worker. Processor time of the worker
counts. Both sides include the three clock reads per batch by which a worker counts its
work. The program has its own processor and the two workers share another one: a worker
on the program's processor costs a few percent more.

    python benchmarks/bench_watching.py
"""

import itertools
import os
import pathlib
import statistics
import time
from typing import NamedTuple

import gristmill as grain
from harness import AtMost, Measurement, Question, Settings, main

TURN_S = 3e-3
WARM_S = 0.5
# The placement of its objects in memory makes an iterator faster or slower by a similar
# amount, so the median of many pairs is used.
PAIRS = 12
NEVER = 1 << 60


class PlusOne(grain.transforms.Map):
    def map(self, element):
        return element + 1


def _cost(batch: int | None, settings: Settings) -> Measurement:
    from gristmill._dataset.model.observer import suppress_observation

    ds = grain.MapDataset.range(10_000_000).shuffle(1).repeat()
    ds = ds.map(lambda x: x + 1).to_iter_dataset()
    if batch is not None:
        ds = ds.batch(batch)

    def bare():
        with suppress_observation():
            return iter(ds)

    ratios = []
    for number in range(PAIRS):
        timed, untimed = _make_pair(number, lambda: iter(ds), bare)
        times = _measure_turns(number, timed, untimed, 2 * settings.seconds)
        ratios.append(times.timed_s / times.untimed_s)
    return _percent(ratios)


def _make_pair(number: int, make_timed, make_untimed):
    """Makes both iterators of a pair; in every other pair the untimed one first."""
    if number % 2:
        untimed = make_untimed()
        return make_timed(), untimed
    return make_timed(), make_untimed()


def _percent(ratios: list[float]) -> Measurement:
    return Measurement((statistics.median(ratios) - 1) * 100)


class _TurnTimes(NamedTuple):
    """Processor times of both iterators' turns, in s, and the outputs of each."""

    timed_s: float
    untimed_s: float
    outputs: int


def _measure_turns(number: int, timed, untimed, seconds: float) -> _TurnTimes:
    """Lets both iterators of pair `number` take turns for some seconds."""
    first, second = (timed, untimed) if number // 2 % 2 else (untimed, timed)
    _outputs_of_a_turn(first)
    count = _outputs_of_a_turn(second)
    processor_s = {timed: 0.0, untimed: 0.0}
    outputs = 0
    until = time.perf_counter() + seconds
    turns = itertools.cycle((first, second, second, first))
    while time.perf_counter() < until:
        for iterator in itertools.islice(turns, 4):
            start = time.process_time()
            for _ in itertools.islice(iterator, count):
                pass
            processor_s[iterator] += time.process_time() - start
        outputs += 2 * count
    return _TurnTimes(processor_s[timed], processor_s[untimed], outputs)


class _Source:
    """A source that turns off timing when it is unpickled, unless it is `timed`."""

    def __init__(self, timed: bool) -> None:
        self.timed = timed

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> int:
        return index

    def __setstate__(self, state) -> None:
        self.__dict__.update(state)
        if not self.timed:
            _disable_timing()


def _disable_timing() -> None:
    """Turns off the timing of new iterators and workers of this process."""
    from gristmill._engine import stage_times

    stage_times.FIRST_MEASURED = NEVER


def _stop_timing(iterator, times) -> None:
    """Turns off the timing of an iterator's calls."""
    iterator._watch.calls_until_timed = NEVER
    times.calls_until_measured = NEVER


def _loader(source):
    iterator = iter(
        grain.load(
            source,
            shuffle=True,
            seed=1,
            transformations=[PlusOne()],
            batch_size=256,
            worker_count=1,
        )
    )
    next(iterator)
    return iterator, iterator._run._running.scheduler


def _cost_of_loader(settings: Settings) -> Measurement:
    def bare():
        iterator, scheduler = _loader(_Source(timed=False))
        _stop_timing(iterator, iterator._run._times)
        return iterator, scheduler

    return _cost_with_workers(lambda: _loader(_Source(timed=True)), bare, settings)


def _torch_loader():
    import torch

    import gristmill.torch

    dataset = torch.utils.data.TensorDataset(torch.arange(50_000_000))
    loader = gristmill.torch.DataLoader(
        dataset, batch_size=64, num_workers=1, multiprocessing_context="fork"
    )
    iterator = iter(loader)
    next(iterator)
    return iterator, iterator._pool._pool.scheduler


def _cost_of_torch(settings: Settings) -> Measurement:
    from gristmill._engine import stage_times

    def bare():
        first = stage_times.FIRST_MEASURED
        _disable_timing()
        iterator, scheduler = _torch_loader()
        stage_times.FIRST_MEASURED = first
        _stop_timing(iterator, iterator._pool._pool._times)
        return iterator, scheduler

    return _cost_with_workers(_torch_loader, bare, settings)


def _cost_with_workers(make_timed, make_untimed, settings: Settings) -> Measurement:
    """Measures like `_cost`, with iterators that have a worker each.

    Both functions make an iterator, and return it with its scheduler.
    """
    own_core, *other_cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {own_core})
    ratios = []
    for number in range(PAIRS):
        pair = _make_pair(number, make_timed, make_untimed)
        (timed, timed_scheduler), (untimed, untimed_scheduler) = pair
        for scheduler in (timed_scheduler, untimed_scheduler):
            _bind(scheduler, other_cores[:1] or [own_core])
        timed_before = _worker_usage(timed_scheduler)
        untimed_before = _worker_usage(untimed_scheduler)
        times = _measure_turns(number, timed, untimed, 2 * settings.seconds)
        timed_s = _seconds_since(timed_scheduler, timed_before, times.outputs)
        untimed_s = _seconds_since(untimed_scheduler, untimed_before, times.outputs)
        ratios.append((times.timed_s + timed_s) / (times.untimed_s + untimed_s))
        for iterator in (timed, untimed):
            end = getattr(iterator, "close", None) or iterator._shutdown_workers
            end()
    return _percent(ratios)


def _bind(scheduler, processors: list[int]) -> None:
    """Binds all threads of the workers to these processors."""
    for thread in _threads(scheduler):
        os.sched_setaffinity(int(thread.name), processors)


def _seconds_since(scheduler, before: tuple[float, int], outputs: int) -> float:
    """Returns the workers' seconds for `outputs`, by the outputs since `before`.

    `before` is an earlier result of `_worker_usage`.
    """
    seconds, total_outputs = _worker_usage(scheduler)
    seconds_before, outputs_before = before
    return (seconds - seconds_before) / (total_outputs - outputs_before) * outputs


def _worker_usage(scheduler) -> tuple[float, int]:
    """Returns processor time of all threads of the workers, in s, and their outputs."""
    total_ns = sum(
        int((thread / "schedstat").read_text().split()[0])
        for thread in _threads(scheduler)
    )
    return total_ns / 1e9, sum(counts[2] for counts in scheduler.counts())


def _threads(scheduler) -> list[pathlib.Path]:
    """Returns the folder in /proc of each thread of the workers."""
    return [
        thread
        for pid, _, _ in scheduler.processes()
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir()
    ]


def _outputs_of_a_turn(iterator) -> int:
    """Returns the number of outputs that take about `TURN_S`, after a warm-up."""
    count = 0
    until = time.perf_counter() + WARM_S
    while time.perf_counter() < until:
        next(iterator)
        count += 1
    return max(int(count * TURN_S / WARM_S), 1)


QUESTION = Question(
    name="watching",
    text="what timing some calls and blocks costs a cheap chain, batch 256",
    unit="% of CPU time",
    contestants={
        "gristmill": lambda settings: _cost(256, settings),
        "single": lambda settings: _cost(None, settings),
        "loader": _cost_of_loader,
        "torch": _cost_of_torch,
    },
    targets=(
        AtMost(1),
        AtMost(1, ours="single"),
        AtMost(1, ours="loader"),
        AtMost(1, ours="torch"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
