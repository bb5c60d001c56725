"""Finds the node that limits the rate of an `IterDataset`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from gristmill._base.types import T
from gristmill._dataset.model import observer

if TYPE_CHECKING:
    from gristmill._base.report import Report


class Reportable(Generic[T]):
    """A dataset whose iteration can be measured."""

    def report(
        self,
        seconds: float = 3.0,
        consume: Callable[[T], Any] | None = None,
        verify: bool = False,
        trace: bool = False,
    ) -> Report:
        """Iterate for a short time, and find the node that limits the rate.

        The first element, which includes the start of workers, does not count.

        Args:
            seconds: The approximate duration, at most until the data ends.
            consume: Called with each element, in place of the training loop. By default
                elements are dropped.
            verify: Whether to try changes, which takes up to five times `seconds`
                more: see `DatasetIterator.report`.
            trace: Whether to record when each stage runs, for `Report.trace`.  That
                takes 5 to 20 us for each call of a stage.

        Returns:
            A `Report`; with `verify`, its `checks` are the results of the changes.

        Raises:
            ValueError: `seconds` is not positive.

        Example:
            >>> ds = gristmill.MapDataset.range(10**6).to_iter_dataset().batch(100)
            >>> report = ds.report(seconds=0.2)
            >>> report.outputs > 0
            True
        """
        return observer.get_observer().report_of_run(
            self, seconds, consume, verify, trace
        )
