"""Nodes that measure the node before them; `measured_copy.py` adds them to a chain."""

from __future__ import annotations

import functools
import time
from typing import Any, TypeVar

from gristmill._base.types import Indices
from gristmill._dataset.model.blocks import BlockMapDataset, block_of
from gristmill._dataset.model.error_notes import record_of
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    DatasetIterator,
    ForwardingIterator,
)
from gristmill._dataset.model.names import node_line
from gristmill._dataset.model.node import ParentSpec
from gristmill._observe.meter import Costs, Measurement, Meter, Numbers, Stopwatch

T = TypeVar("T")
# The time between two snapshots that a worker sends.
SEND_INTERVAL_NS = 50_000_000
# The size of an element is measured in one of 16 calls, beginning with the first one.
_SIZE_SAMPLE_MASK = 15
# The number of calls that `measure_costs` times for a median.
_TRIALS = 101


class _MeasuredBase(ParentSpec):
    """A node with the elements of the node that it measures.

    Args:
        node: The node that is measured; it becomes the parent.
        measurement: The measurement of the chain.
        meter: The meter of the node.
    """

    _IS_SELECTION = True

    def __init__(self, node: Any, measurement: Measurement, meter: Meter) -> None:
        super().__init__(node)
        self._measurement = measurement
        self._meter = meter

    def _node_line(self) -> str:
        return node_line(self._parent)


class MeasuredMapDataset(_MeasuredBase, BlockMapDataset[T]):
    """Measures a dataset that is read by index."""

    def __len__(self) -> int:
        return len(self._parent)

    @property
    def _ancestor(self) -> Any:
        return self._parent

    def _record(self, index: int) -> int | None:
        return record_of(self._parent, index)

    def _block(self, indices: Indices) -> list[Any]:
        measurement, meter = self._measurement, self._meter
        call = measurement.start(meter)
        element_count = 0
        try:
            elements = block_of(self._parent, indices)
            element_count = len(elements)
        finally:
            measurement.stop(meter, call, element_count)
        if meter.spec is None or meter.numbers.calls & _SIZE_SAMPLE_MASK == 1:
            present = next((x for x in elements if x is not None), None)
            measurement.sample_element(meter, present)
        return elements


class MeasuredIterDataset(_MeasuredBase, IterDataset[T]):
    """Measures a dataset that is iterated over."""

    _IS_INNER = True

    def __iter__(self) -> DatasetIterator[T]:
        inner: DatasetIterator[T] = iter(self._parent)
        if not isinstance(inner, MeasuredDatasetIterator):
            self._meter.name = str(inner)
        return MeasuredDatasetIterator(inner, self._measurement, self._meter)


class PassingIterator(ForwardingIterator[T]):
    """Iterates over its parent's elements, with the parent's state and attributes."""

    def __str__(self) -> str:
        return str(self._parent)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_parents" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._parent, name)


class MeasuredDatasetIterator(PassingIterator[T]):
    """Iterates over a node's elements and measures their times."""

    def __init__(
        self, inner: DatasetIterator[T], measurement: Measurement, meter: Meter
    ) -> None:
        super().__init__(inner)
        self._inner = inner
        self.measurement = measurement
        self._meter = meter
        # Whether the next call starts workers; then its time does not count.
        self._starts_workers = meter.kind == "transport"

    def __next__(self) -> T:
        measurement, meter = self.measurement, self._meter
        call = measurement.start(meter)
        element_count = 0
        try:
            element = next(self._inner)
            element_count = 1
        finally:
            measurement.stop(meter, call, element_count)
        if self._starts_workers:
            self._starts_workers = False
            numbers = meter.numbers
            meter.numbers = Numbers(numbers.elements, calls=numbers.calls)
        if meter.numbers.calls & _SIZE_SAMPLE_MASK == 1:
            measurement.sample_element(meter, element)
        return element


@functools.cache
def measure_costs() -> Costs:
    """Return the time that measuring adds; the first call measures it in 2 ms."""
    measurement = Measurement(Costs())
    measurement.records_intervals = False
    node, parent = (measurement.meter_of(None, "transform") for _ in range(2))
    inner: Any = MeasuredDatasetIterator(_Zeros(), measurement, parent)
    outer: Any = MeasuredDatasetIterator(inner, measurement, node)

    def medians(parent_reads_cpu_time: bool) -> tuple[int, int]:
        """Return the median own times of the node and of its parent, in ns."""
        times = []
        for _ in range(_TRIALS):
            node.numbers, parent.numbers = Numbers(), Numbers()
            node.reads_cpu_time, parent.reads_cpu_time = False, parent_reads_cpu_time
            next(outer)
            times.append((node.numbers.direct_ns, parent.numbers.direct_ns))
        node_times, parent_times = zip(*times, strict=True)
        middle = _TRIALS // 2
        return sorted(node_times)[middle], sorted(parent_times)[middle]

    node_ns, parent_ns = medians(parent_reads_cpu_time=False)
    node_with_cpu_ns, _ = medians(parent_reads_cpu_time=True)
    return Costs(
        call=parent_ns,
        parent_call=max(node_ns - parent_ns, 0),
        cpu_read=max(node_with_cpu_ns - node_ns, 0),
    )


class _Zeros(DatasetIterator[int]):
    """Returns zeros."""

    def __next__(self) -> int:
        return 0

    def get_state(self) -> Any:
        return {}

    def set_state(self, state: Any) -> None:
        pass


class PassingIterDataset(IterDataset[T]):
    """The parent's elements, passed through an iterator of another class."""

    def __init__(
        self,
        parent: IterDataset[Any],
        iterator_class: type[SendingIterator | ReceivingIterator[T]],
        measurement: Measurement,
    ) -> None:
        super().__init__(parent)
        self._iterator_class = iterator_class
        self._measurement = measurement

    def __iter__(self) -> DatasetIterator[Any]:
        return self._iterator_class(iter(self._parent), self._measurement)

    def _node_line(self) -> str:
        return node_line(self._parent)


class SendingIterator(PassingIterator[Any]):
    """Runs in a worker: adds a snapshot of the measurement to each element.

    An element becomes ``(element, snapshot)``; most snapshots are empty.
    """

    def __init__(self, parent: DatasetIterator[Any], measurement: Measurement) -> None:
        super().__init__(parent)
        self._measurement = measurement
        self._sent_ns = 0
        # The thread's processor time when the last element was returned.
        self._returned_cpu_ns: int | None = None

    def __next__(self) -> Any:
        stats = self._measurement.own
        if not stats.elements:
            stats.start_ns = time.perf_counter_ns()
        if self._returned_cpu_ns is not None:
            stats.sending_ns += time.thread_time_ns() - self._returned_cpu_ns
            self._returned_cpu_ns = None
        stopwatch = Stopwatch()
        element = next(self._parent)
        stats.working_ns += stopwatch.read_ns()
        stats.elements += 1
        snapshot = b""
        now_ns = time.perf_counter_ns()
        if now_ns - self._sent_ns > SEND_INTERVAL_NS:
            self._sent_ns = now_ns
            snapshot = self._measurement.snapshot()
        self._returned_cpu_ns = time.thread_time_ns()
        return element, snapshot


class ReceivingIterator(PassingIterator[T]):
    """Takes snapshots from the elements of a `SendingIterator`."""

    def __init__(self, parent: DatasetIterator[Any], measurement: Measurement) -> None:
        super().__init__(parent)
        self._measurement = measurement

    def __next__(self) -> T:
        received: tuple[T, bytes] = next(self._parent)
        element, snapshot = received
        if snapshot:
            self._measurement.receive(snapshot)
        return element
