"""Measures some blocks of a dataset that is read by index, at hardly any cost.

Now and then one block is computed by a copy of the chain that `measured_copy` made; its
elements are the same.  A user's own node is not copied, and what it reads is
counted as its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from gristmill import monitoring
from gristmill._base.types import Int64Array
from gristmill._dataset.model.blocks import block_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.nodes.source import SourceMapDataset
from gristmill._observe.meter import Measurement

# To measure a block takes up to 0.2 ms.  A run shorter than this is not worth it:
LEAST_REST_NS = 10_000_000
# Rests grow with the run up to this:
MOST_REST_NS = 250_000_000
# This part of it:
REST_OF_RUN = 1 / 4


class Sampling:
    """Reads some blocks of a dataset, and measures them.

    Threads may read at the same time.

    Args:
        dataset: The dataset.
        wake: Called now and then with False, and with True where an element fails.

    Attributes:
        due_ns: When the next block should be read here, by `time.perf_counter_ns`.
        measurement: What is known of the blocks that were measured; None before any.
        measured: How many elements they had.
        took_ns: How long they took, other programs' time included.
    """

    def __init__(self, dataset: MapDataset[Any], wake: Callable[[bool], None]) -> None:
        self._dataset = dataset
        self._lock = threading.Lock()
        self._copy: Any = None
        self.measurement: Measurement | None = None
        self._wake = wake
        self.measured = self.took_ns = 0
        # Elements of each source that metrics know of, and how long they took.
        self._told: list[tuple[int, float]] = []
        self._opened_ns = time.perf_counter_ns()
        self.due_ns = 0 if monitoring.is_on() else self._opened_ns + LEAST_REST_NS

    def read(self, indices: Int64Array) -> list[Any]:
        """The elements at `indices`, of shape (n,), which are measured.

        Raises:
            Exception: What one of the elements raised.
        """
        with self._lock:
            if self._copy is None:
                from gristmill._observe.measured import measured_copy  # Knows nodes.

                self._copy, self.measurement = measured_copy(self._dataset)
        self._wake(False)
        began = time.perf_counter_ns()
        rest = int(REST_OF_RUN * (began - self._opened_ns))
        rest = min(max(rest, LEAST_REST_NS), MOST_REST_NS)
        self.due_ns = 0 if monitoring.is_on() else began + rest
        elements = block_of(self._copy, indices)
        took = time.perf_counter_ns() - began
        with self._lock:
            self.measured += len(indices)
            self.took_ns += took
            if monitoring.is_on():
                self._tell()
        return elements

    def failed(self) -> None:
        """Take into account that an element fails, after those before are given out."""
        self._wake(True)

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
