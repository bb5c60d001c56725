"""Copies chains of datasets, with a node that measures behind each node of the copy.

A chain that is not measured has none of these and pays nothing.
"""

from __future__ import annotations

from typing import Any

from gristmill._dataset.model.blocks import is_built_in
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import with_parents
from gristmill._dataset.nodes.interleave import InterleaveIterDataset
from gristmill._dataset.nodes.order import IndexMapDataset
from gristmill._dataset.nodes.with_options import (
    WithOptionsIterDataset,
    WithSeedIterDataset,
)
from gristmill._observe.kinds import gathers, kind_of, parents_of
from gristmill._observe.measured import (
    MeasuredIterDataset,
    MeasuredMapDataset,
    PassingIterDataset,
    ReceivingIterator,
    SendingIterator,
    costs,
)
from gristmill._observe.meter import Measurement, Meter


def measured(dataset: Any) -> tuple[Any, Measurement]:
    """Copy a chain; return the copy, which is measured, and what will be known of it.

    Args:
        dataset: The chain's last node, of either kind; it is not changed.
    """
    measurement = Measurement(costs())
    return _copy(dataset, measurement), measurement


def measured_copy(dataset: Any) -> tuple[Any, Measurement]:
    """As `measured`, at less cost and for a `MapDataset`.

    A run of nodes that only order is one, and users' own nodes are not copied, so that
    what these read counts as their own.
    """
    measurement = Measurement(costs())
    return _cheap_copy(dataset, measurement), measurement


def _cheap_copy(dataset: Any, measurement: Measurement) -> Any:
    meter = measurement.new_meter(dataset, kind_of(dataset))
    if not is_built_in(type(dataset)) or gathers(dataset):
        return MeasuredMapDataset(dataset, measurement, meter)
    run = [dataset]
    while isinstance(run[-1], IndexMapDataset) and len(run[-1]._parents) == 1:
        parent = run[-1]._parents[0]
        if not (isinstance(parent, IndexMapDataset) and is_built_in(type(parent))):
            break
        run.append(parent)
    parents = []
    for parent in run[-1]._parents:
        meter.inputs.append(len(measurement.meters))
        parents.append(_cheap_copy(parent, measurement))
    node = with_parents(run[-1], parents) if parents else run[-1]
    for below in reversed(run[:-1]):
        node = with_parents(below, [node])
    meter.name = " <- ".join(map(str, run))
    return MeasuredMapDataset(node, measurement, meter)


def _copy(dataset: Any, measurement: Measurement) -> Any:
    if isinstance(dataset, (WithOptionsIterDataset, WithSeedIterDataset)):
        # Its iterator is its parent's.
        return with_parents(dataset, [_copy(dataset._parent, measurement)])
    meter = measurement.new_meter(dataset, kind_of(dataset))
    node = dataset
    if isinstance(dataset, InterleaveIterDataset):
        node = _copy_of_interleave(dataset, measurement, meter)
    elif not gathers(dataset):
        parents = []
        for parent in parents_of(dataset):
            meter.inputs.append(len(measurement.meters))
            parents.append(_copy(parent, measurement))
        if meter.kind == "transport":
            node = PassingIterDataset(parents[0], SendingIterator, measurement)
            node = dataset.with_in_workers(node)
            node = PassingIterDataset(node, ReceivingIterator, measurement)
        elif parents:
            node = with_parents(dataset, parents)
    if isinstance(dataset, MapDataset):
        return MeasuredMapDataset(node, measurement, meter)
    return MeasuredIterDataset(node, measurement, meter)


def _copy_of_interleave(
    dataset: InterleaveIterDataset[Any], measurement: Measurement, meter: Meter
) -> Any:
    """A copy whose datasets are measured; those of one shape have common meters."""
    if isinstance(dataset.datasets, MapDataset):
        return dataset  # They are made when they are needed.
    firsts: dict[Any, int] = {}
    copies = []
    for part in dataset.datasets:
        shape = _shape(part)
        begin = firsts.setdefault(shape, len(measurement.meters))
        if begin == len(measurement.meters):
            meter.inputs.append(begin)
            copies.append(_copy(part, measurement))
            continue
        # Copied with meters of its own, which are then taken from it.
        end = len(measurement.meters)
        copied = _copy(part, measurement)
        _share_meters(copied, measurement, begin - end)
        del measurement.meters[end:], measurement.datasets[end:]
        copies.append(copied)
    return dataset.with_datasets(copies)


def _shape(dataset: Any) -> Any:
    """What two datasets have in common that are made of the same nodes."""
    parents = parents_of(dataset)
    if isinstance(dataset, InterleaveIterDataset):
        return (type(dataset), id(dataset))
    return (type(dataset), gathers(dataset), *map(_shape, parents))


def _share_meters(copied: Any, measurement: Measurement, distance: int) -> None:
    """Make all measuring nodes of a copy use meters `distance` further on."""
    if isinstance(copied, (MeasuredMapDataset, MeasuredIterDataset)):
        copied._meter = measurement.meters[copied._meter.number + distance]
    for parent in parents_of(copied):
        _share_meters(parent, measurement, distance)
