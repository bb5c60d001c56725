"""Computes the output that follows a state again, in this process."""

from __future__ import annotations

from typing import Any

from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.node import builds
from gristmill._dataset.model.observer import suppress_observation
from gristmill._dataset.parallel.record_tracing import ChainTracer
from gristmill._dataset.parallel.single_thread import SingleThreadCopier
from gristmill._dataset.parallel.source_list import SourceList
from gristmill._dataset.parallel.traced_element import Ids, TracedElement, ids_of


@builds("IterDataset.replay")
def replay(dataset: IterDataset[Any], state: Any) -> Any:
    """See `IterDataset.replay`."""
    return _compute_next(SingleThreadCopier(None).copy(dataset), state)


@builds("IterDataset.ids")
def ids(dataset: IterDataset[Any], state: Any) -> Ids:
    """See `IterDataset.ids`."""
    tracer = ChainTracer(SourceList(dataset))
    element: TracedElement | None = _compute_next(
        SingleThreadCopier(tracer).copy(dataset), state
    )
    return ids_of(element)


def _compute_next(dataset: Any, state: Any) -> Any:
    """Return the output after a state, computed by a new iterator."""
    with suppress_observation():
        iterator = iter(dataset)
    try:
        iterator.set_state(state)
        return next(iterator)
    finally:
        iterator.close()
