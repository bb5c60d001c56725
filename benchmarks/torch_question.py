"""Questions about PyTorch loaders: ours and torch's build the same loader.

A benchmark gives a function that builds a loader by a class, and ``contestants``
times its batches.  Classes are imported inside, so that a process imports only the
one it measures.
"""

import functools
import itertools
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from harness import Measurement, Settings, seconds_per_batch
from workloads import SEED

CHECKED_BATCHES = 4
CACHE_LINE = 64


def _gristmill_class() -> Any:
    from gristmill.torch import DataLoader

    return DataLoader


def _torch_class() -> Any:
    from torch.utils.data import DataLoader

    return DataLoader


CLASSES = {"gristmill": _gristmill_class, "torch": _torch_class}


def tensors(batch: Any) -> Iterator[Any]:
    """Yields the tensors of a batch, of dicts in the order of their keys."""
    if isinstance(batch, dict):
        for value in batch.values():
            yield from tensors(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from tensors(value)
    else:
        yield batch


def digest(batches: Iterator[Any]) -> str:
    """Returns a digest of the first batches of a loader."""
    checksum = 0
    for batch in itertools.islice(batches, CHECKED_BATCHES):
        for tensor in tensors(batch):
            array = np.ascontiguousarray(tensor.numpy())
            checksum = zlib.crc32(array.tobytes(), checksum)
            checksum = zlib.crc32(f"{array.dtype} {array.shape}".encode(), checksum)
    return f"{checksum:x}"


def read(batch: Any) -> int:
    """Reads every cache line of a batch, as a consumer would."""
    return sum(int(t.numpy().reshape(-1)[::CACHE_LINE].sum()) for t in tensors(batch))


def _measure(
    name: str,
    build: Callable[[Any], Any],
    units: float,
    use: Callable[[Any], Any] | None,
    clock: Callable[[], float],
    settings: Settings,
) -> Measurement:
    import torch

    torch.manual_seed(SEED)
    batches = iter(build(CLASSES[name]()))
    answers = {"first batches": digest(batches)}
    seconds = seconds_per_batch(batches, settings.seconds, use, clock=clock)
    return Measurement(seconds * units, answers)


def contestants(
    build: Callable[[Any], Any],
    units: float = 1e6,
    use: Callable[[Any], Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Callable[[Settings], Measurement]]:
    """Returns Gristmill's and torch's loader as contestants.

    Args:
        build: Makes a loader with the given class, too long to reach its end.
        units: Units of the answer per second; by default microseconds.
        use: Called by the consumer with each batch.
        clock: Returns the time to measure, in seconds.
    """
    return {
        name: functools.partial(_measure, name, build, units, use, clock)
        for name in CLASSES
    }
