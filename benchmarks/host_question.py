"""Ranks of one host that share a loader, or have a loader each.

A rank is a fresh process, like those that torchrun starts.  The ranks execute commands
together: each begins when all have the command, and the next one follows when all have
finished.  Processes that outlive their parent become children of this process, so that
the server of a shared pool counts as well.
"""

import contextlib
import ctypes
import dataclasses
import importlib
import itertools
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil

from jpeg_question import SIDE, files
from process_memory import pss_of
from workloads import SEED, DictRows, add_one, leaves, rows

RANKS = 8
WORKERS = 2
PICTURES = 32
LISTED = 200_000
# The processes are at rest if they used no processor time for this long, in s.
REST_S = 0.3
_SET_CHILD_SUBREAPER = 36


class Listed:
    """A user's source of pictures: a Python list of all files and classes."""

    def __init__(self) -> None:
        once = [{"path": path, "label": label} for path, label in files()]
        self.listed = [
            dict(one) for one in itertools.islice(itertools.cycle(once), LISTED)
        ]

    def __len__(self) -> int:
        return len(self.listed)

    def __getitem__(self, index: int) -> dict[str, Any]:
        listed = self.listed[index]
        with open(listed["path"], "rb") as file:
            return {"image": file.read(), "label": listed["label"]}


def pictures(shard: tuple[int, int], workers: int = WORKERS) -> Any:
    """Return a loader of 32 JPEG files, decoded and resized to 224 x 224, without end.

    Args:
        shard: The number of the part of the data, and the number of parts.
        workers: The number of workers.
    """
    from gristmill import images

    operations = [
        images.DecodeImage(channels=3, key="image"),
        images.Resize((SIDE, SIDE), key="image"),
    ]
    return _loader(Listed(), operations, PICTURES, shard, workers)


def numbers(shard: tuple[int, int], workers: int = WORKERS) -> Any:
    """Return a loader of 256 rows of a table through a Python map, without end.

    Its batches take little time to compute.  See `pictures` for the arguments.
    """
    import gristmill as grain

    class Step(grain.MapTransform):
        def map(self, record: dict[str, Any]) -> dict[str, Any]:
            return add_one(record)

    return _loader(DictRows(rows(10_000)), [Step()], 256, shard, workers)


def _loader(
    source: Any,
    operations: list[Any],
    batch_size: int,
    shard: tuple[int, int],
    workers: int,
) -> Any:
    import gristmill as grain

    return grain.DataLoader(
        data_source=source,
        sampler=grain.IndexSampler(len(source), shuffle=True, seed=SEED),
        operations=[*operations, grain.Batch(batch_size, drop_remainder=True)],
        shard_options=grain.ShardOptions(*shard),
        worker_count=workers,
    )


@dataclasses.dataclass(frozen=True)
class Sharing:
    """How the ranks get their batches.

    Args:
        ranks: The number of ranks.
        mode: "deal" or "broadcast" to share a loader; None for a loader each.
        same: Whether all ranks get the same batches.
    """

    ranks: int
    mode: str | None
    same: bool = False

    def loader(self, make: Callable[..., Any], rank: int, **options: Any) -> Any:
        """Return the loader of a rank."""
        alone = self.mode is not None or self.same
        return make((0, 1) if alone else (rank, self.ranks), **options)

    def iterator(self, loader: Any, name: str, rank: int) -> Iterator[Any]:
        """Return the iterator of a rank on its loader."""
        if self.mode is None:
            return iter(loader)
        from gristmill import host

        return host.share(
            loader, name=name, rank=rank, ranks=self.ranks, mode=self.mode
        )


DEALT = {
    "gristmill": Sharing(RANKS, "deal"),
    "one loader": Sharing(1, None),
    "8 loaders": Sharing(RANKS, None),
}
SAME = {
    "gristmill, broadcast": Sharing(RANKS, "broadcast", same=True),
    "8 loaders, same batches": Sharing(RANKS, None, same=True),
}


class Rank:
    """The commands of a rank.

    Args:
        sharing: How the ranks get their batches.
        make: Makes the loader, see `pictures`.
        name: The name of the pool.
        rank: The number of the rank.
    """

    def __init__(
        self, sharing: Sharing, make: Callable[..., Any], name: str, rank: int
    ) -> None:
        self._sharing = sharing
        self._place = name, rank
        self._loader = sharing.loader(make, rank)
        # Import what sharing and batches need.
        importlib.import_module("gristmill.host")
        next(iter(sharing.loader(make, rank, workers=0)))
        self._batches: Iterator[Any]

    def first(self) -> float:
        """Take the first batch; return the time when it was there."""
        self._batches = self._sharing.iterator(self._loader, *self._place)
        _use(next(self._batches))
        return time.perf_counter()

    def take(self, count: int) -> None:
        """Take batches."""
        for batch in itertools.islice(self._batches, count):
            _use(batch)

    def arrivals(self, count: int) -> list[tuple[float, float]]:
        """Take batches of a loader with one worker.

        Returns:
            For each, the time when a worker had committed it, and when it was there.
        """
        from gristmill._pool.call_metrics import CallMetrics

        committed: list[float] = []
        record = CallMetrics.record_call

        def record_call(metrics: Any, worker: Any, call: Any) -> None:
            committed.append(call.ready_s)
            record(metrics, worker, call)

        CallMetrics.record_call = record_call  # type: ignore[method-assign]
        arrived = []
        self._batches = self._sharing.iterator(self._loader, *self._place)
        for _ in range(count):
            next(self._batches)
            arrived.append(time.perf_counter())
        return list(zip(committed, arrived, strict=False))


def _use(batch: Any) -> int:
    """Read one byte of each page of a batch, like a consumer."""
    return sum(
        int(leaf.reshape(-1).view(np.uint8)[::4096].sum()) for leaf in leaves(batch)
    )


def _run(
    pipe: Any, variables: dict[str, str], make_rank: Callable[..., Any], *arguments: Any
) -> None:
    """Run a rank: answer the commands of a pipe until it is closed."""
    os.environ.update(variables)
    try:
        rank = make_rank(*arguments)
        pipe.send(None)
        while command := pipe.recv():
            method, *options = command
            pipe.send(getattr(rank, method)(*options))
    except EOFError:
        pass
    except BaseException:
        traceback.print_exc()
        pipe.close()
        raise


class Ranks:
    """The processes of all ranks.

    Args:
        pipes: A pipe to each.
    """

    def __init__(self, pipes: list[Any]) -> None:
        self._pipes = pipes
        self._root = psutil.Process()

    def call(self, method: str, *options: Any) -> list[Any]:
        """Have all ranks execute a command at the same time; return their answers."""
        for pipe in self._pipes:
            pipe.send((method, *options))
        return [pipe.recv() for pipe in self._pipes]

    def processor_s(self) -> float:
        """Return the processor time of the ranks and their workers, once they rest."""
        before, now = -1.0, self._used_s()
        while now != before:
            time.sleep(REST_S)
            before, now = now, self._used_s()
        return now

    def pss_mib(self) -> float:
        """Return the proportional share of the memory of all processes."""
        return sum(pss_of(one.pid) for one in self._processes()) / 2**20

    def _processes(self) -> list[psutil.Process]:
        return list(self._root.children(recursive=True))

    def _used_s(self) -> float:
        total = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return round(total, 2)


@contextlib.contextmanager
def started(
    count: int, make_rank: Callable[..., Any], *arguments: Any
) -> Iterator[Any]:
    """Start ranks; end them, and all their workers, afterwards.

    Args:
        count: The number of ranks.
        make_rank: Makes a rank in its process.
        arguments: The arguments of `make_rank`, except the last one: its number.

    Yields:
        The `Ranks`.
    """
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for rank in range(count):
        ours, theirs = context.Pipe()
        variables = {  # Those of torchrun.
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
        }
        process = context.Process(
            target=_run, args=(theirs, variables, make_rank, *arguments, rank)
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        for pipe in pipes:
            pipe.recv()  # The rank has made its loader.
        yield Ranks(pipes)
    finally:
        for pipe in pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in processes:
            process.join()


def sharing_ranks(sharing: Sharing, make: Callable[..., Any]) -> Any:
    """Start the ranks of a sharing; see `started`."""
    name = f"benchmark-{os.getpid()}-{time.monotonic_ns()}"
    return started(sharing.ranks, Rank, sharing, make, name)
