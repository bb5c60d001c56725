"""The same workload through Gristmill, Grain, PyTorch, SPDL and bare processes.

Every function takes a ``Workload`` and returns an iterator of batches.  Libraries
are imported inside, so that a process imports only the one it measures.
"""

import functools
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from workloads import SEED, Workload

# A torch sampler needs a length; no run reaches the end of this many epochs.
ENDLESS_EPOCHS = 1_000_000


def import_grain() -> Any:
    """Imports Grain, whose options are absl flags that must count as parsed."""
    from absl import flags

    flags.FLAGS.mark_as_parsed()
    import grain

    return grain


def import_gristmill() -> Any:
    import gristmill

    return gristmill


def import_torch() -> Any:
    import torch.utils.data

    return torch


def import_spdl() -> Any:
    import spdl.pipeline

    return spdl.pipeline


def _grain_loader(grain: Any, work: Workload, **options: Any) -> Any:
    operations = []
    if work.step is not None:
        body = {"map": staticmethod(work.step)}
        operations.append(type("Step", (grain.transforms.Map,), body)())
    if work.random_step is not None:
        body = {"random_map": staticmethod(work.random_step)}
        operations.append(type("RandomStep", (grain.transforms.RandomMap,), body)())
    operations.append(grain.transforms.Batch(work.batch_size))
    return grain.DataLoader(
        data_source=work.source,
        sampler=grain.samplers.IndexSampler(
            len(work.source),
            shard_options=grain.sharding.NoSharding(),
            shuffle=True,
            num_epochs=work.epochs,
            seed=SEED,
        ),
        operations=operations,
        worker_count=work.workers,
        **options,
    )


def gristmill(work: Workload) -> Iterator[Any]:
    """Gristmill with its default options."""
    return iter(_grain_loader(import_gristmill(), work))


def grain_default(work: Workload) -> Iterator[Any]:
    """Grain with its default options: 16 reading threads."""
    return iter(_grain_loader(import_grain(), work))


def grain_no_threads(work: Workload) -> Iterator[Any]:
    """Grain without reading threads, its faster setting for memory."""
    grain = import_grain()
    return iter(_grain_loader(grain, work, read_options=grain.ReadOptions(0, 0)))


class _Mapped:
    """A torch dataset that applies the user's function when a record is read."""

    def __init__(self, source: Any, step: Callable[[Any], Any]) -> None:
        self.source = source
        self.step = step

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        return self.step(self.source[index])


def torch(work: Workload, context: str | None = None) -> Iterator[Any]:
    """PyTorch's DataLoader with a RandomSampler and its default collation.

    ``context`` is the start method of its workers; None for PyTorch's default.
    """
    from torch.utils.data import DataLoader, RandomSampler

    source = work.source if work.step is None else _Mapped(work.source, work.step)
    # One long epoch, so that workers are not restarted.
    passes = work.epochs or ENDLESS_EPOCHS
    sampler = RandomSampler(source, num_samples=len(source) * passes)
    return iter(
        DataLoader(
            source,
            batch_size=work.batch_size,
            sampler=sampler,
            num_workers=work.workers,
            multiprocessing_context=context,
        )
    )


class _WholeBatches:
    """A torch dataset of whole batches: NumPy's fancy indexing does the work."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, indices: list[int]) -> np.ndarray:
        return self.table[indices]


def torch_gathered(work: Workload) -> Iterator[Any]:
    """PyTorch as experts use it for one array: a BatchSampler as the sampler."""
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    source = _WholeBatches(work.source)
    passes = work.epochs or ENDLESS_EPOCHS
    sampler = RandomSampler(source, num_samples=len(source) * passes)
    batches = BatchSampler(sampler, work.batch_size, drop_last=False)
    return iter(DataLoader(source, batch_size=None, sampler=batches))


def index_batches(work: Workload) -> Iterator[np.ndarray]:
    """Yields shuffled record numbers, one int64 array per batch."""
    rng = np.random.default_rng(SEED)
    count = len(work.source) // work.batch_size * work.batch_size
    for _ in itertools.count() if work.epochs is None else range(work.epochs):
        order = rng.permutation(len(work.source))[:count]
        yield from order.reshape(-1, work.batch_size)


class _Stacker:
    """Reads, maps and stacks the records of one batch, in an SPDL thread."""

    def __init__(self, work: Workload) -> None:
        self.source = work.source
        self.step = work.step

    def __call__(self, indices: np.ndarray) -> Any:
        source, step = self.source, self.step
        if step is None:
            records = [source[i] for i in indices.tolist()]
        else:
            records = [step(source[i]) for i in indices.tolist()]
        if not isinstance(records[0], dict):
            return np.stack(records)
        return {key: np.stack([r[key] for r in records]) for key in records[0]}


def spdl(work: Workload) -> Iterator[Any]:
    """SPDL's thread pool, with one thread if Gristmill uses no workers."""
    from spdl.pipeline import PipelineBuilder

    threads = max(work.workers, 1)
    pipeline = (
        PipelineBuilder()
        .add_source(index_batches(work))
        .pipe(_Stacker(work), concurrency=threads)
        .add_sink(2 * threads)
        .build(num_threads=threads)
    )
    with pipeline.auto_stop():
        yield from pipeline.get_iterator(timeout=60)


def loader_contestants(measure: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Returns all loaders as contestants.

    `measure` is called with a loader, whether it keeps the sampler's order, and the
    settings.
    """
    loaders = {
        "gristmill": (gristmill, True),
        "grain default": (grain_default, True),
        "grain (0, 0)": (grain_no_threads, True),
        "torch": (torch, False),
        "spdl": (spdl, False),
    }
    return {
        name: functools.partial(measure, load, in_order)
        for name, (load, in_order) in loaders.items()
    }


def _time_unit(
    barrier: Any, times: Any, unit: Callable[[int], None], count: int
) -> None:
    """Puts the start and the end of `count` calls into the queue `times`."""
    for number in range(2):  # Touch the reused memory.
        unit(number)
    barrier.wait()
    start = time.perf_counter()
    for number in range(count):
        unit(number)
    times.put((start, time.perf_counter()))


def seconds_in_processes(units: list[Callable[[int], None]], count: int) -> float:
    """Runs ``unit(0..count-1)`` of each callable in its own forked process.

    Returns the wall time from the first start to the last end, in seconds.
    """
    context = multiprocessing.get_context("fork")
    barrier, times = context.Barrier(len(units)), context.Queue()
    processes = [
        context.Process(target=_time_unit, args=(barrier, times, unit, count))
        for unit in units
    ]
    for process in processes:
        process.start()
    spans = [times.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)
