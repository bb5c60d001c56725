"""Measures shuffled records of one file through loaders.

A ``bench_records_<kind>.py`` chooses the records and the number of workers.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import record_peers
from harness import GRAIN, AtLeast, AtMost, Measurement, Question, Settings, throughput
from record_files import array_record
from workloads import BATCH, Workload

CHECKED_RECORDS = 4096


def _measure(
    load: Callable[[Workload], Iterator[Any]],
    in_order: bool,
    records: Callable[[int], Iterator[bytes]],
    count: int,
    options: str,
    batch: int,
    workers: int,
    settings: Settings,
) -> Measurement:
    def path(size: int) -> str:
        name = f"{records.__name__}-{size}"
        return array_record(name, options, lambda: records(size))

    work = Workload(
        path(settings.records or count),
        batch_size=batch,
        step=record_peers.parse,
        workers=workers,
    )
    checked = path(min(count, CHECKED_RECORDS))
    seconds, answers = throughput(load, work, checked, settings, in_order=in_order)
    return Measurement(seconds / batch * 1e6, answers)


def make_question(
    name: str,
    text: str,
    records: Callable[[int], Iterator[bytes]],
    *,
    workers: int,
    targets: tuple[AtLeast | AtMost, ...],
    count: int = 200_000,
    options: str = "group_size:1",
    batch: int = BATCH,
) -> Question:
    """Returns the question for records that ``records(count)`` yields."""
    loaders: dict[str, tuple[Callable[[Workload], Iterator[Any]], bool]] = {
        "gristmill": (record_peers.gristmill, True),
        "grain default": (record_peers.grain_default, True),
        "grain (0, 0)": (record_peers.grain_no_threads, True),
        "torch": (record_peers.torch_items, False),
        "torch getitems": (record_peers.torch_batches, False),
    }
    contestants = {
        name: functools.partial(_measure, *how, records, count, options, batch, workers)
        for name, how in loaders.items()
    }
    return Question(
        name=name, text=text, unit="us/record", contestants=contestants, targets=targets
    )


SMALL = (
    AtLeast(60, GRAIN),
    AtLeast(50, ("torch",)),
    AtLeast(4, ("torch getitems",)),
)
