"""Measures how long a batch of 19.3 MB takes to 8 ranks of one host.

Prints us from the time at which the batch was complete in the memory of a worker until
the last rank has it; lower is better.  All ranks wait for it.  "gloo" is
`torch.distributed.broadcast` of the same bytes from the memory of rank 0, from the time
at which rank 0 calls it.  "wake-ups" is the least that this machine needs: a process
sends one byte to each of 8 others, which wait for it in Python.

    python benchmarks/bench_host_broadcast.py
"""

import os
import socket
import statistics
import time

import numpy as np

from harness import AtLeast, AtMost, Measurement, Question, Settings, main
from host_question import RANKS, Sharing, sharing_ranks, started
from workloads import IMAGE_BATCH, IMAGE_SHAPE, SEED

BATCHES, WARM = 48, 8
# The ranks take less time than this to wait for the next batch.
PAUSE_S = 0.03


class _Pictures:
    """One picture in memory, many times."""

    def __init__(self) -> None:
        rng = np.random.default_rng(SEED)
        self.picture = rng.integers(0, 256, IMAGE_SHAPE, np.uint8)

    def __len__(self) -> int:
        return IMAGE_BATCH * (BATCHES + 1)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.picture


def _slow(shard: tuple[int, int], workers: int = 1):
    import gristmill as grain

    class Pause(grain.MapTransform):
        def map(self, batch):
            time.sleep(PAUSE_S)
            return batch

    source = _Pictures()
    return grain.DataLoader(
        data_source=source,
        sampler=grain.IndexSampler(len(source), shuffle=False, num_epochs=1),
        operations=[grain.Batch(IMAGE_BATCH), Pause()],
        shard_options=grain.ShardOptions(*shard),
        worker_count=workers,
    )


class _GlooRank:
    """A rank of a process group."""

    def __init__(self, port: int, rank: int) -> None:
        import torch
        import torch.distributed as distributed

        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        distributed.init_process_group("gloo", rank=rank, world_size=RANKS)
        self._distributed = distributed
        self._batch = torch.zeros((IMAGE_BATCH, *IMAGE_SHAPE), dtype=torch.uint8)

    def arrivals(self, count: int) -> list[tuple[float, float]]:
        times = []
        for _ in range(count):
            self._distributed.barrier()
            if not self._distributed.get_rank():
                time.sleep(PAUSE_S)  # The others wait.
            start = time.perf_counter()
            self._distributed.broadcast(self._batch, 0)
            times.append((start, time.perf_counter()))
        return times


class _Waiter:
    """A process that waits for bytes, or sends them if it is number 0.

    Args:
        pairs: For each process that waits, the sender's socket and its own.
        number: The number of the process.
    """

    def __init__(
        self, pairs: list[tuple[socket.socket, socket.socket]], number: int
    ) -> None:
        self._pairs, self._number = pairs, number

    def arrivals(self, count: int) -> list[tuple[float, float]]:
        times = []
        for _ in range(count):
            if self._number:
                self._pairs[self._number - 1][1].recv(1)
                start = time.perf_counter()
            else:
                time.sleep(PAUSE_S)  # The others wait.
                start = time.perf_counter()
                for sender, _ in self._pairs:
                    sender.send(b"x")
            times.append((start, time.perf_counter()))
        return times


def _median_us(arrivals: list[list[tuple[float, float]]]) -> float:
    """Return the median time from the start of rank 0 to the last arrival."""
    times = [
        max(end for _, end in ranks) - ranks[0][0]
        for ranks in zip(*arrivals, strict=True)
    ]
    return statistics.median(times[WARM:]) * 1e6


def _shared(settings: Settings) -> Measurement:
    del settings
    with sharing_ranks(Sharing(RANKS, "broadcast", same=True), _slow) as ranks:
        return Measurement(_median_us(ranks.call("arrivals", BATCHES)))


def _gloo(settings: Settings) -> Measurement:
    del settings
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with started(RANKS, _GlooRank, port) as ranks:
        return Measurement(_median_us(ranks.call("arrivals", BATCHES)))


def _wake_ups(settings: Settings) -> Measurement:
    del settings
    pairs = [
        socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(RANKS)
    ]
    with started(RANKS + 1, _Waiter, pairs) as processes:
        times = processes.call("arrivals", BATCHES)
    for pair in pairs:
        for end in pair:
            end.close()
    return Measurement(_median_us(times))


QUESTION = Question(
    name="host_broadcast",
    text="a committed batch of 19.3 MB to 8 ranks of one host",
    unit="us",
    contestants={"gristmill": _shared, "gloo": _gloo, "wake-ups": _wake_ups},
    targets=(AtMost(200), AtLeast(10, ("gloo",))),
)

if __name__ == "__main__":
    main(QUESTION)
