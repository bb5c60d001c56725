"""Measures some blocks of a dataset that is read by index, at hardly any cost.

Every 0.1 s one block is computed by a copy of the chain that `measured_copy` made; its
elements are the same.  A user's own node is not copied, and what it reads is
counted as its own.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from gristmill import monitoring
from gristmill._dataset.base import MapDataset
from gristmill._dataset.blocks import BlockMapDataset, block_of, is_built_in
from gristmill._dataset.meter import Measurement
from gristmill._dataset.source import SourceMapDataset
from gristmill._dataset.spec import ParentSpec
from gristmill._types import Int64Array

T = TypeVar("T")
# To measure a block takes up to 0.1 ms, so that this is spent once in a while.
REST_NS = 100_000_000
# A short run is not worth a copy.
UNMEASURED_AT_FIRST = 8


class SampledMapDataset(ParentSpec, BlockMapDataset[T]):
    """The parent's elements; some blocks are measured.

    Args:
        parent: The dataset.
        wake: Called now and then with False, and with True where an element fails.

    Attributes:
        measurement: What is known of the blocks that were measured; None before any.
        measured: How many elements they had.
        took_ns: How long they took, other programs' time included.
    """

    def __init__(self, parent: MapDataset[T], wake: Callable[[bool], None]) -> None:
        super().__init__(parent)
        self._copy: Any = None
        self.measurement: Measurement | None = None
        self._wake = wake
        self._read: Callable[[Int64Array], list[Any]]
        self._read = functools.partial(block_of, parent)
        if isinstance(parent, BlockMapDataset) and is_built_in(type(parent)):
            self._read = parent._block
        self.measured = self.took_ns = 0
        # Elements of each source that metrics know of, and how long they took.
        self._told: list[tuple[int, float]] = []
        # Blocks before the next one that is measured.
        self._left = 0 if monitoring.is_on() else UNMEASURED_AT_FIRST

    def __len__(self) -> int:
        return len(self._parent)

    def __str__(self) -> str:
        return str(self._parent)

    def _block(self, indices: Int64Array) -> list[Any]:
        try:
            if self._left > 0:
                self._left -= 1
                return self._read(indices)
            return self._measured(indices)
        except Exception:
            # Elements before the one that fails are given out first.
            self._wake(True)
            raise

    def _measured(self, indices: Int64Array) -> list[Any]:
        if self._copy is None:
            from gristmill._dataset.measured import measured_copy  # Knows all nodes.

            self._copy, self.measurement = measured_copy(self._parent)
        self._wake(False)
        began = time.perf_counter_ns()
        elements = block_of(self._copy, indices)
        took = time.perf_counter_ns() - began
        self.measured += len(indices)
        self.took_ns += took
        if monitoring.is_on():
            self._tell()
        else:
            self._left = REST_NS // max(took, 1)
        return elements

    def _tell(self) -> None:
        """Count what sources gave among the metrics; every block is measured then."""
        assert self.measurement is not None
        told, self._told = self._told, []
        meters = zip(self.measurement.meters, self.measurement.datasets, strict=True)
        sources = [m for m in meters if isinstance(m[1], SourceMapDataset)]
        for number, (meter, dataset) in enumerate(sources):
            before = told[number] if told else (0, 0.0)
            now = (meter.elements, meter.direct + meter.background)
            self._told.append(now)
            made = now[0] - before[0]
            if made > 0:
                name = type(dataset._source).__name__
                size = made * meter.bytes_each
                monitoring.record_read(name, made, size, max(now[1] - before[1], 0.0))
