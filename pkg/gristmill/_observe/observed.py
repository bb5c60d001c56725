"""The last iterator of a chain that is measured."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, TypeVar

from gristmill._base import log
from gristmill._dataset.nodes.missing_states import refuse_missing_states
from gristmill._observe import drawing
from gristmill._observe.chain_watch import ChainWatch
from gristmill._observe.measured import PassingIterator
from gristmill._observe.measured_copy import copy_measured
from gristmill._observe.meter import Measurement
from gristmill._observe.summary import execution_summary, summarize

T = TypeVar("T")
LOG_INTERVAL_S = 60.0
# The logging thread ends if there was no element for this time.
IDLE_S = 120.0


class ObservedDatasetIterator(PassingIterator[T]):
    """Iterates over a chain that is measured.

    Args:
        dataset: The chain's last node.
        logs: Whether to log the table of nodes every minute.
        folder: The folder for a drawing; "" to log it only, None to draw nothing.
        checks_state: Whether `get_state` raises TypeError if a part of the state is
            missing.
    """

    def __init__(
        self,
        dataset: Any,
        logs: bool = False,
        folder: str | None = None,
        checks_state: bool = False,
    ) -> None:
        chain, self.measurement = copy_measured(dataset)
        super().__init__(iter(chain))
        if checks_state:  # First, because timing changes the class for a while.
            refuse_missing_states(self, dataset)
        self._folder = folder
        # True if the first call has to draw the chain, and to start the logging thread.
        self._must_draw = folder is not None
        self._must_start_log = logs
        # Ends the logging thread, which does not refer to this iterator.
        self._ended = threading.Event()
        weakref.finalize(self, self._ended.set)
        self._watch = ChainWatch(self, dataset)

    def __next__(self) -> T:
        if self._must_start_log:
            self._must_start_log = False
            threading.Thread(
                target=_log_periodically,
                args=(self.measurement, self._ended),
                name="gristmill-debug",
                daemon=True,
            ).start()
        element: T = next(self._parent)
        if self._must_draw:
            self._must_draw = False
            drawing.draw(self.measurement, self._folder)
        return element

    def close(self) -> None:
        """End all threads and workers, also the thread that logs."""
        if not getattr(self, "_closed", True):
            self._ended.set()
        super().close()


def _log_periodically(measurement: Measurement, ended: threading.Event) -> None:
    """Log the table after changes, until the iterator ends or is not used."""
    logged_ns = 0
    while not ended.wait(LOG_INTERVAL_S):
        updated_ns = measurement.updated_ns
        if time.perf_counter_ns() - updated_ns > IDLE_S * 1e9:
            return
        if updated_ns > logged_ns:
            logged_ns = updated_ns
            log.show(execution_summary(summarize(measurement)))
