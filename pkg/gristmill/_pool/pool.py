"""The interface between lanes and pools, and the results of pools."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from gristmill._pool.call_metrics import CallMetrics, MeasuredWorker
from gristmill._pool.unit_task import TaskResult, UnitTask

# The name of a lane's owner, and the number of the lane within it.  A lane is a caller
# that makes one call at a time.
Lane = tuple[str, int]


class TimedResult(NamedTuple):
    """A unit that was computed.

    Attributes:
        worker: The worker that computed it.
        ready_s: The time at which the result was ready, before its transfer, by
            `time.perf_counter`.
        result: The result.
    """

    worker: MeasuredWorker
    ready_s: float
    result: TaskResult


class WorkerLost(NamedTuple):
    """A unit that was not computed because its worker was lost.

    Attributes:
        worker: The lost worker, or text that names it.
        why: The reason for the loss, as far as known.
        blames_unit: Whether the unit may be the cause.  False if the worker was
            computing another unit, or if its node or the connection to it was lost.
    """

    worker: Any
    why: str
    blames_unit: bool


class Pool(Protocol):
    """Has units computed for the lanes of a scheduler.  Any threads may call it.

    Attributes:
        failure: The reason why no more answers will come; empty if there is none.
    """

    failure: str

    def new_metrics(self) -> CallMetrics:
        """Return an object that measures the calls of one scheduler."""

    def open(self, owner: str) -> None:
        """Start the workers if no user has opened the pool yet; does not wait for them.

        Args:
            owner: The owner of the lanes that will use it.

        Raises:
            Exception: The program cannot be pickled.
        """

    def activity(self, lane: Lane) -> str:
        """Return a sentence about what a lane waits for."""

    def end_worker(self, lane: Lane) -> None:
        """End the worker that a lane calls, because it does not answer."""

    def resize(self, count: int) -> None:
        """Change the number of workers; others redo the units of removed ones."""

    def close(self, owner: str) -> None:
        """End the calls of a user's lanes, and the workers after the last user."""


class CalledPool(Pool, Protocol):
    """A pool that lanes call for each unit."""

    def compute(self, lane: Lane, task: UnitTask) -> TimedResult | WorkerLost | None:
        """Have a worker compute a unit and wait for it.

        Returns:
            The result, or a report of the loss; None if no result will come, because
            the pool was closed or has failed.
        """
