"""Looks at chains that somebody iterates over, as much as settings ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.options import ExecutionTrackingMode
from gristmill._dataset.nodes.with_options import options_of
from gristmill._observe.measured import measured
from gristmill._observe.observed import ObservedDatasetIterator
from gristmill._observe.watch import Watch
from gristmill.config import config


def open_chain(dataset: Any, make: Callable[[Any], Any]) -> Any:
    """An iterator over a chain.

    Args:
        dataset: Its last node.
        make: The node's own ``__iter__``.
    """
    folder = config.py_dataset_visualization_output_dir
    logs = config.py_debug_mode
    if logs or folder is not None or _asks_for_times(dataset):
        return observed(dataset, logs, folder)
    iterator = make(dataset)
    if isinstance(iterator, DatasetIterator) and iterator._watch is None:
        iterator._watch = Watch(iterator)
    return iterator


def observed(
    dataset: Any, logs: bool, folder: str | None
) -> ObservedDatasetIterator[Any]:
    """An iterator over a chain of which every node is measured.

    Args:
        dataset: Its last node.
        logs: Whether to log the table of nodes every minute.
        folder: Where a drawing goes; see `config`.
    """
    chain, measurement = measured(dataset)
    return ObservedDatasetIterator(iter(chain), measurement, logs, folder)


def _asks_for_times(dataset: Any) -> bool:
    """Whether options of a chain say to measure every node."""
    mode = options_of(dataset).execution_tracking_mode
    return mode is ExecutionTrackingMode.STAGE_TIMING
