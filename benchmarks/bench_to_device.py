"""Measures the cost of having a batch on the device.

Prints ms per batch of 19.3 MB in a slot of shared memory; lower is better. With a CUDA
device the batches are copied there, and compared with ``cudaMemcpyAsync`` of one batch
from memory that torch pinned. Making batches does not count: eight of them are used
over and over. Without a device, two workers make batches, and `to_device` for the CPU,
which copies nothing, is compared with drawing them from the loader.

    python benchmarks/bench_to_device.py

``timeline_to_device.py`` shows that copies overlap with computation.
"""

import functools
import itertools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import peers
from harness import AtMost, Measurement, Question, Settings, main, seconds_per_batch
from workloads import IMAGE_BATCH, Workload, images

SLOTS = 8
WORKERS = 2
# Checked by the file, because importing torch takes a second.
HAS_CUDA = pathlib.Path("/dev/nvidiactl").exists()


def batches_in_slots() -> tuple[Any, list[Any]]:
    """Returns a loader's iterator and eight of its batches, which stay in its slots."""
    work = Workload(images(), batch_size=IMAGE_BATCH, workers=WORKERS)
    loader = peers.gristmill(work)
    return loader, list(itertools.islice(loader, SLOTS))


def _measure_copies(batches: Iterator[Any], settings: Settings) -> Measurement:
    import torch

    # Synchronize once per 64 batches, so that copies may queue.
    def synchronized() -> Iterator[None]:
        while True:
            for _ in range(64):
                next(batches)
            torch.cuda.synchronize()
            yield

    seconds = seconds_per_batch(synchronized(), settings.seconds, warm=1, at_least=2)
    return Measurement(seconds * 1e3 / 64)


def _to_cuda(settings: Settings) -> Measurement:
    from gristmill.torch import to_device

    loader, in_slots = batches_in_slots()
    batches = to_device(itertools.cycle(in_slots), "cuda")
    measurement = _measure_copies(batches, settings)
    batches.close()
    loader.close()
    return measurement


def _memcpy(settings: Settings) -> Measurement:
    import torch

    loader, in_slots = batches_in_slots()
    pinned = torch.from_numpy(in_slots[0]).pin_memory()
    loader.close()
    target = torch.empty_like(pinned, device="cuda")
    copies = (target.copy_(pinned, non_blocking=True) for _ in itertools.count())
    return _measure_copies(copies, settings)


def _to_cpu(batches: Iterator[Any]) -> Iterator[Any]:
    from gristmill.torch import to_device

    return to_device(batches, "cpu")


def _on_the_cpu(
    wrap: Callable[[Iterator[Any]], Iterator[Any]], settings: Settings
) -> Measurement:
    loader = peers.gristmill(
        Workload(images(), batch_size=IMAGE_BATCH, workers=WORKERS)
    )
    seconds = seconds_per_batch(wrap(loader), settings.seconds)
    loader.close()
    return Measurement(seconds * 1e3)


if HAS_CUDA:
    QUESTION = Question(
        name="to_device",
        text="a 19.3 MB batch from a slot to the CUDA device",
        unit="ms/batch",
        contestants={"gristmill": _to_cuda, "pinned cudaMemcpy": _memcpy},
        targets=(AtMost(1.05, "pinned cudaMemcpy"),),
    )
else:
    QUESTION = Question(
        name="to_device",
        text="a 19.3 MB batch from a slot to the CPU (no CUDA device here)",
        unit="ms/batch",
        contestants={
            "gristmill": functools.partial(_on_the_cpu, _to_cpu),
            "plain iteration": functools.partial(_on_the_cpu, iter),
        },
        targets=(AtMost(1.05, "plain iteration"),),
    )

if __name__ == "__main__":
    main(QUESTION)
