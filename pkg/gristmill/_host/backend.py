"""The workers of a loader that uses the pool of its host."""

from __future__ import annotations

import dataclasses
from typing import Any

from gristmill import _core
from gristmill._engine.stream import Runnable
from gristmill._engine.workers import Workers
from gristmill._host.client import HostPool, HostPoolOptions
from gristmill._host.lanes import HostLanes
from gristmill._host.launch_variables import count_ranks_of_host
from gristmill._host.mode import Mode
from gristmill._host.programs import WHOLE, Part
from gristmill._pool.lanes import PoolLanes


@dataclasses.dataclass(frozen=True)
class HostWorkers:
    """Workers of a pool.  See `gristmill._engine.workers.WorkerBackend`.

    Attributes:
        worker_count: The number of workers of the host.
        worker_buffer: The loader's number of units that each worker may compute ahead,
            besides the two that it holds.
        options: The options of the rank.
        parts: The parts of the loader, to compare with those of other ranks.
        base: The program with the data of all ranks, or an object that is pickled as
            that; None if the program of each rank has the data.
        part: The part of the base's chain that a rank's program has.
    """

    worker_count: int
    worker_buffer: int
    options: HostPoolOptions
    parts: dict[str, Any] = dataclasses.field(repr=False)
    base: Any = dataclasses.field(default=None, repr=False)
    part: Part = WHOLE

    units_at_once = 1
    # All ranks have the same program, and a rank has one iterator at a time.  So trials
    # use workers of their own, and steps in these workers are not measured.
    allows_copies = False

    def __repr__(self) -> str:
        name, rank, ranks, mode = self.options[:4]
        return (
            f"the pool {name!r} of {self.worker_count} workers for rank {rank} of"
            f" {ranks}, mode={mode.value!r}"
        )

    def processes(self) -> int:
        """Return the number of workers."""
        return self.worker_count

    def count(self) -> int:
        """Return a scheduler's number of lanes.

        Each lane keeps units that were computed ahead.  So with "deal", the ranks of
        this host have few lanes each: together one more than there are workers, so that
        a worker can begin a unit while a lane takes the last one.
        """
        return min(self.worker_count, -(-(self.worker_count + 1) // self._dealt_among))

    @property
    def buffer(self) -> int:
        """Units that each lane may keep ahead, besides the two that it holds.

        If possible, the lanes of all ranks keep as many as the workers of one loader.
        """
        units = self.worker_count * (2 + self.worker_buffer)
        return max(0, -(-units // (self.count() * self._dealt_among)) - 2)

    @property
    def _dealt_among(self) -> int:
        """The number of ranks on this host that request different units."""
        if self.options.mode is Mode.BROADCAST:
            return 1
        return min(count_ranks_of_host(), self.options.ranks)

    def resized(self, processes: int) -> HostWorkers:
        """Return the same workers with another number of processes."""
        return dataclasses.replace(self, worker_count=processes)

    def in_epoch(self, epoch: int) -> HostWorkers:
        """Return the same workers for the chain in an epoch, see `Part`."""
        return dataclasses.replace(self, part=self.part._replace(epoch=epoch))

    def workers(
        self, scheduler: _core.Scheduler, program: Runnable, before: Workers | None
    ) -> Workers:
        """Return a scheduler's workers; see `WorkerBackend`."""
        if isinstance(before, PoolLanes):
            return before.followed_by(scheduler, self.worker_count)
        base = program if self.base is None else self.base
        pool = HostPool(
            base, program, self.part, self.worker_count, self.options, self.parts
        )
        return PoolLanes(HostLanes(scheduler, pool))


def check_workers_of_host(
    kind: str, owner: str, argument: str, backend: object, count: object, streams: int
) -> None:
    """Check that what a user shares has a number of workers of this machine.

    Args:
        kind: What it is, "chain" or "loader".
        owner: The text for the object that has the workers.
        argument: The name of the argument with their number.
        backend: The backend of the workers, which must be None.
        count: The number of workers, or "auto".
        streams: The number of streams.

    Raises:
        ValueError: `backend` is not None, or `count` is 0 or "auto".
    """
    if backend is not None:
        raise ValueError(
            f"share needs a {kind} with workers of this host, but {owner} has"
            f" workers={backend!r}. Leave workers= out, and pass {argument}."
        )
    if not count or count == "auto":
        raise ValueError(
            f"share needs a {kind} with a number of workers, but {owner} has"
            f" {argument}={count!r}. Pass the number of workers of the host as"
            f" {argument}, and streams={streams} for the same order."
        )
