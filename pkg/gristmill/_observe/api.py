"""The functions that datasets call; see `gristmill._dataset.model.observer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.options import ExecutionTrackingMode
from gristmill._dataset.nodes.missing_states import refuse_missing_states
from gristmill._dataset.nodes.thread_prefetch import open_prefetching
from gristmill._dataset.nodes.with_options import options_of
from gristmill._observe.accounting import consumed_of as consumed_of
from gristmill._observe.chain_watch import watch_chain
from gristmill._observe.drawing import figure_of as figure_of
from gristmill._observe.observed import ObservedDatasetIterator
from gristmill._observe.passes import PassStart
from gristmill._observe.repeated import pass_counter_of
from gristmill._observe.reporting import report_of as report_of
from gristmill._observe.reporting import report_of_run as report_of_run
from gristmill._observe.summary_message import (
    get_execution_summary as get_execution_summary,
)
from gristmill.config import config


def open_chain(
    dataset: Any, open_iterator: Callable[[Any], Any], is_users_chain: bool
) -> Any:
    """Return an iterator over a chain, which is observed according to the settings.

    Args:
        dataset: The chain's last node.
        open_iterator: The node's own ``__iter__``.
        is_users_chain: Whether it is the user's chain, and not a part of another one.
    """
    folder = config.py_dataset_visualization_output_dir
    logs = config.py_debug_mode
    mode = options_of(dataset).execution_tracking_mode
    if logs or folder is not None or mode is ExecutionTrackingMode.STAGE_TIMING:
        iterator: Any = ObservedDatasetIterator(dataset, logs, folder, is_users_chain)
    else:
        iterator = open_prefetching(dataset, open_iterator)
        # Only a DatasetIterator can be watched, and only once.
        if not isinstance(iterator, DatasetIterator) or iterator._watch is not None:
            return iterator
        # Before `watch_chain`, which may change the class for a while.
        if is_users_chain:
            refuse_missing_states(iterator, dataset)
        watch_chain(iterator, dataset)
    if is_users_chain and (counter := pass_counter_of(dataset)) is not None:
        iterator._watch.pass_start = PassStart(counter)
    return iterator
