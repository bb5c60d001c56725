"""Loaders over an ArrayRecord file, each with its own data source.

Every function takes a ``Workload`` whose source is a path.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

import peers
from workloads import Workload


def parse(record: bytes) -> np.ndarray:
    """The user's Map: the record's int32."""
    return np.frombuffer(record, np.int32)


def _with_source(work: Workload, source: Any) -> Workload:
    return dataclasses.replace(work, source=source)


def _package_source(path: str) -> Any:
    """Returns the data source of the array_record package."""
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    return ArrayRecordDataSource(path)


def gristmill(work: Workload) -> Iterator[Any]:
    source = peers.import_gristmill().ArrayRecordDataSource(work.source)
    return peers.gristmill(_with_source(work, source))


def grain_default(work: Workload) -> Iterator[Any]:
    source = peers.import_grain().sources.ArrayRecordDataSource(work.source)
    return peers.grain_default(_with_source(work, source))


def grain_no_threads(work: Workload) -> Iterator[Any]:
    source = peers.import_grain().sources.ArrayRecordDataSource(work.source)
    return peers.grain_no_threads(_with_source(work, source))


def torch_items(work: Workload) -> Iterator[Any]:
    """PyTorch over the array_record package's source, item by item."""
    return peers.torch(
        _with_source(work, _Items(_package_source(work.source))), _context(work)
    )


class _Items:
    """Like the package's source, without ``__getitems__``."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        return self.source[index]


class _Batches(_Items):
    """Like `_Items`, but reads a whole batch at once."""

    def __init__(self, source: Any, step: Any) -> None:
        super().__init__(source)
        self.step = step

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.step(record) for record in self.source.__getitems__(indices)]


def torch_batches(work: Workload) -> Iterator[Any]:
    """PyTorch over the array_record package's source, by ``__getitems__``."""
    source = _Batches(_package_source(work.source), work.step)
    return peers.torch(
        dataclasses.replace(work, source=source, step=None), _context(work)
    )


def _context(work: Workload) -> str | None:
    """Returns spawn: forked workers, the default, crash in the package's reader."""
    return "spawn" if work.workers else None
