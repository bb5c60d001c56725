"""Copies chains of datasets, and adds a node that measures after each node.

A chain that is not measured has no such nodes, so it costs nothing.
"""

from __future__ import annotations

from typing import Any

from gristmill._dataset.model.blocks import is_built_in
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import with_parents
from gristmill._dataset.nodes.interleave import InterleaveIterDataset
from gristmill._dataset.nodes.with_options import (
    WithOptionsIterDataset,
    WithSeedIterDataset,
)
from gristmill._observe.kinds import kind_of, makes_native_batches, parents_of
from gristmill._observe.measured import (
    MeasuredIterDataset,
    MeasuredMapDataset,
    PassingIterDataset,
    ReceivingIterator,
    SendingIterator,
    measure_costs,
)
from gristmill._observe.meter import Measurement, Meter


def copy_measured(
    dataset: Any, *, copies_user_nodes: bool = True
) -> tuple[Any, Measurement]:
    """Return a copy of a chain that is measured, and its measurement.

    Args:
        dataset: The chain's last node, of either kind; it is not changed.
        copies_user_nodes: Whether to copy nodes of users' own classes, too.  The time
            of a node that is not copied includes the time of its parents, and a trace
            does not get the intervals.
    """
    measurement = Measurement(measure_costs())
    measurement.records_intervals = copies_user_nodes
    return _copy(dataset, measurement, copies_user_nodes), measurement


def _copy(dataset: Any, measurement: Measurement, copies_user_nodes: bool) -> Any:
    """Return a measured copy of a chain, with its meters added to the measurement."""

    def copy_parents() -> list[Any]:
        parent_copies = []
        for parent in parents_of(dataset):
            meter.inputs.append(measurement.next_number)
            parent_copies.append(_copy(parent, measurement, copies_user_nodes))
        return parent_copies

    if isinstance(dataset, (WithOptionsIterDataset, WithSeedIterDataset)):
        # Its iterator is its parent's.
        return with_parents(
            dataset, [_copy(dataset._parent, measurement, copies_user_nodes)]
        )
    meter = measurement.meter_of(dataset, kind_of(dataset))
    node = dataset
    if isinstance(dataset, InterleaveIterDataset):
        node = _copy_of_interleave(dataset, measurement, meter)
    elif makes_native_batches(dataset) or not (
        copies_user_nodes or is_built_in(type(dataset))
    ):
        pass  # The node is measured with all nodes above it.
    elif not getattr(getattr(dataset, "_backend", None), "allows_copies", True):
        pass  # Its workers compute the chain that all ranks have.
    elif meter.kind == "transport":
        node = PassingIterDataset(copy_parents()[0], SendingIterator, measurement)
        node = dataset.with_in_workers(node)
        node = PassingIterDataset(node, ReceivingIterator, measurement)
    elif dataset._parents:
        node = with_parents(dataset, copy_parents())
    if isinstance(dataset, MapDataset):
        return MeasuredMapDataset(node, measurement, meter)
    return MeasuredIterDataset(node, measurement, meter)


def _copy_of_interleave(
    dataset: InterleaveIterDataset[Any], measurement: Measurement, meter: Meter
) -> Any:
    """Return a copy whose datasets are measured; equal shapes share meters."""
    if isinstance(dataset.datasets, MapDataset):
        return dataset  # The datasets are made when they are needed.
    first_numbers: dict[Any, int] = {}  # Of the meters, by shape.
    copies = []
    for part in dataset.datasets:
        end = measurement.next_number
        begin = first_numbers.setdefault(_shape(part), end)
        if begin == end:
            meter.inputs.append(begin)
        measurement.next_number = begin
        copies.append(_copy(part, measurement, copies_user_nodes=True))
        measurement.next_number = len(measurement.meters)
    return dataset.with_datasets(copies)


def _shape(dataset: Any) -> Any:
    """Return a value that is equal for datasets that are made of the same nodes."""
    parents = parents_of(dataset)
    if isinstance(dataset, InterleaveIterDataset):
        return (type(dataset), id(dataset))
    return (type(dataset), makes_native_batches(dataset), *map(_shape, parents))
