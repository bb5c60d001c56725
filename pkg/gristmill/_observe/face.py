"""The functions that datasets call; see `gristmill._dataset.model.observer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.options import ExecutionTrackingMode
from gristmill._dataset.nodes.thread_prefetch import opened
from gristmill._dataset.nodes.unsaved import refuse_unsaved
from gristmill._dataset.nodes.with_options import options_of
from gristmill._observe.chain_watch import watch
from gristmill._observe.drawing import figure_of as figure_of
from gristmill._observe.observed import ObservedDatasetIterator
from gristmill._observe.passes import Opening
from gristmill._observe.repeated import passes_of
from gristmill._observe.reporting import report_of as report_of
from gristmill._observe.reporting import report_of_run as report_of_run
from gristmill._observe.summary_message import (
    get_execution_summary as get_execution_summary,
)
from gristmill.config import config


def open_chain(dataset: Any, make: Callable[[Any], Any], counts: bool) -> Any:
    """Return an iterator over a chain, which is observed as the settings say.

    Args:
        dataset: The chain's last node.
        make: The node's own ``__iter__``.
        counts: Whether it is the user's chain, and not a part of another one.
    """
    folder = config.py_dataset_visualization_output_dir
    logs = config.py_debug_mode
    mode = options_of(dataset).execution_tracking_mode
    if logs or folder is not None or mode is ExecutionTrackingMode.STAGE_TIMING:
        iterator: Any = ObservedDatasetIterator(dataset, logs, folder, counts)
    else:
        iterator = opened(dataset, make)
        if not isinstance(iterator, DatasetIterator) or iterator._watch is not None:
            return iterator
        if counts:  # First, because `watch` may change the class for a while.
            refuse_unsaved(iterator, dataset)
        watch(iterator, dataset)
    if counts and (passes := passes_of(dataset)) is not None:
        iterator._watch.opening = Opening(passes)
    return iterator
