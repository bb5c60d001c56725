"""Workloads for worker_count="auto", and for fixed numbers of workers.

Each function of `WORKLOADS` returns a loader without end for a number of workers, and
the time that the consumer takes for an output, in s. All have the order of 8 streams.
The time of a record in "changing" changes while the loader runs.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import far_files
import far_server
from harness import Measurement, Settings
from workloads import SEED

RECORDS = 1 << 30
BATCH = 2
STREAMS = 8
COPIED_BYTES = 32 << 20
# Without a change for this time, the number of workers has settled.
SETTLED_S = 5.0
MAX_SETTLING_S = 60.0
# The time after which the records of "changing" take longer.
CHANGE_S = 8.0


def sleep(record: Any) -> np.ndarray:
    time.sleep(0.01)
    return np.full(100, record)


def compute(record: Any) -> np.ndarray:
    values = np.full(100, record)
    for _ in range(2000):
        values = values * 3 % 1000
    return values


def copy(record: Any) -> np.ndarray:
    return np.full(COPIED_BYTES // 8, record)[::4096].copy()


class Changing:
    """Takes 1 ms for a record at first, and 15 ms later."""

    def __init__(self) -> None:
        self.__name__ = "changing"
        # The workers' monotonic clock is that of this process.
        self._change_s = time.monotonic() + CHANGE_S

    def __call__(self, record: Any) -> np.ndarray:
        time.sleep(0.001 if time.monotonic() < self._change_s else 0.015)
        return np.full(100, record)


def _loader(source: Any, step: Callable[[Any], Any], workers: Any, batch: int) -> Any:
    import gristmill

    sampler = gristmill.IndexSampler(len(source), shuffle=True, seed=SEED)
    body = {"map": lambda _, record: step(record)}
    return gristmill.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[
            type("Step", (gristmill.MapTransform,), body)(),
            gristmill.Batch(batch),
        ],
        worker_count=workers,
        streams=STREAMS,
    )


@contextlib.contextmanager
def _in_memory(step: Callable[[], Any], workers: Any) -> Iterator[Any]:
    yield _loader(range(RECORDS), step(), workers, BATCH)


@contextlib.contextmanager
def _far(workers: Any) -> Iterator[Any]:
    import gristmill

    with far_server.running(far_files.folder()) as url:
        path = f"{url}/records.array_record"
        source = gristmill.sources.ArrayRecordDataSource(path)
        yield _loader(
            source, lambda record: np.frombuffer(record, np.uint8), workers, 64
        )


# The loader's context, the consumer's time for an output, and the fixed numbers.
WORKLOADS: dict[str, tuple[Callable[[Any], Any], float, tuple[int, ...]]] = {
    "sleeping": (lambda n: _in_memory(lambda: sleep, n), 0.002, (1, 2, 4, 8, 16, 32)),
    "computing": (lambda n: _in_memory(lambda: compute, n), 0.0, (1, 2, 4, 8)),
    "copying": (lambda n: _in_memory(lambda: copy, n), 0.0, (1, 2, 4, 8)),
    "slow consumer": (lambda n: _in_memory(lambda: sleep, n), 0.04, (1, 2, 4, 8)),
    "far files": (_far, 0.0, (1, 2, 4, 8)),
    "changing": (lambda n: _in_memory(Changing, n), 0.003, (1, 2, 4, 8, 16, 32)),
}


def _run(iterator: Any, use_s: float, seconds: float) -> int:
    """Takes outputs for some seconds, and returns their number."""
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        next(iterator)
        count += 1
        if use_s:
            time.sleep(use_s)
    return count


def settle(iterator: Any, use_s: float, begin: float) -> float:
    """Takes outputs until "auto" rests; returns the time of its last change, in s."""
    history, changed = 1, begin
    while (now := time.perf_counter()) - max(changed, begin) < SETTLED_S:
        if now - begin > MAX_SETTLING_S:
            return now - begin
        _run(iterator, use_s, 0.05)
        if len(iterator._run._auto.history) != history:
            history, changed = len(iterator._run._auto.history), time.perf_counter()
    return changed - begin


def _settled(iterator: Any, name: str, use_s: float) -> float:
    begin = time.perf_counter()
    if name == "changing":
        _run(iterator, use_s, CHANGE_S + 0.5)
        begin = time.perf_counter() - 0.5
    return settle(iterator, use_s, begin)


def settling(name: str, settings: Settings) -> Measurement:
    """Measures the seconds until the number of workers settles."""
    load, use_s, _ = WORKLOADS[name]
    with load("auto") as loader, contextlib.closing(iter(loader)) as iterator:
        return Measurement(_settled(iterator, name, use_s))


def steady(name: str, workers: Any, settings: Settings) -> Measurement:
    """Measures the milliseconds of an output after that, or with a fixed number."""
    load, use_s, _ = WORKLOADS[name]
    with load(workers) as loader, contextlib.closing(iter(loader)) as iterator:
        if workers == "auto":
            _settled(iterator, name, use_s)
        else:
            _run(iterator, use_s, 2 + (CHANGE_S if name == "changing" else 0))
        begin = time.perf_counter()
        count = _run(iterator, use_s, 6 * settings.seconds)
        return Measurement((time.perf_counter() - begin) / count * 1e3)
