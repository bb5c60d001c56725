"""The workers that compute a scheduler's units: the protocols, and local processes.

A `WorkerBackend` runs workers: processes of this machine, or actors of a cluster.  It
creates one `Workers` object for each scheduler.  The scheduler identifies workers by
number and leases units to them.  The workers, or the supervisor, notify it when a
worker starts or ends.  The scheduler alone manages order, positions and restarts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gristmill import _core
from gristmill._base.argument_checks import check_integer, kind
from gristmill._base.grain_names import WORKER_NAME
from gristmill._base.types import Int64Array
from gristmill._engine import stage_times
from gristmill._engine.worker_stats import LocalStats, LocalWorkerStats, RemoteStats
from gristmill._hot import slot_reader, views

if TYPE_CHECKING:
    from gristmill._engine.stream import Runnable

# The module that workers of the launcher run; see `gristmill._workers.launcher`.
ENTRY = "gristmill._engine.worker"

# Leaves of an output up to this size are copied out of its slot.  Larger ones are views
# that keep the slot occupied.
COPIED_LEAF_BYTES = 16 << 10


class Workers(Protocol):
    """The workers of one scheduler.

    Any thread of `RemoteRun` may call `usage` and `close`, while another one waits for
    the scheduler.
    """

    def start(self) -> None:
        """Start the workers, without waiting for them.

        Raises:
            Exception: An error from pickling the program.
        """

    def ready(self) -> bool:
        """Return whether all workers, or as many as there is room for, have started."""

    def receive(self, due: _core.NextResult) -> tuple[Any, Int64Array]:
        """Return the element of the output that is due, and its keys.

        Large arrays are views.  If the output is an error, the element is the failure
        that the worker sent.
        """

    def activity(self, worker: int) -> str:
        """Return a readable description of the worker's current activity."""

    def death_details(self, worker: int) -> str:
        """Return details of a worker's death besides its wait status; may be empty."""

    def kill(self, worker: int) -> None:
        """Kill a worker that does not respond; a new one takes its number."""

    def usage(self) -> RemoteStats | LocalStats | None:
        """Return the workers' measurements, or None if they are not measured."""

    def close(self) -> None:
        """End all workers.  Arrays that were delivered stay valid."""


class WorkerBackend(Protocol):
    """A backend that runs workers."""

    def processes(self) -> int:
        """Return the number of processes that compute for this backend."""

    def count(self) -> int:
        """Return the largest number of workers for one scheduler."""

    @property
    def buffer(self) -> int:
        """Units that each worker may compute ahead, besides the two that it holds."""

    @property
    def units_at_once(self) -> int:
        """The number of record ranges in one unit."""

    def resized(self, processes: int) -> WorkerBackend:
        """Return this backend with another number of processes."""

    def workers(
        self, scheduler: _core.Scheduler, program: Runnable, before: Workers | None
    ) -> Workers:
        """Return a scheduler's workers, which compute the streams of `program`.

        Args:
            scheduler: The scheduler whose units they compute.
            program: The program that they run.
            before: The workers of this backend that they replace, or None.  The new
                ones may take over resources from these.
        """


def check_backend(workers: object) -> None:
    """Raise TypeError if the `workers` of a loader or a chain has the wrong type."""
    if workers is not None and not hasattr(workers, "workers"):
        raise TypeError(
            f"workers must be a gristmill.ray.RayWorkers or None, got {kind(workers)}."
            " To set the number of processes on this machine, pass worker_count or"
            " num_workers. To share them among ranks, call"
            " gristmill.host.share(loader)."
        )


def check_workers(count: int) -> None:
    """Check the argument of `set_workers`."""
    check_integer("count", count, " It is the new number of workers.")
    if count < 1:
        raise ValueError(
            f"count must be at least 1, got {count}. To compute in your own process,"
            " save a state and restore it in an iterator without workers."
        )


class LauncherWorkers:
    """Processes that the launcher's zygote forks and the supervisor watches."""

    def __init__(
        self,
        scheduler: _core.Scheduler,
        program: Runnable,
        imported: Sequence[str] = (),
        name: str = WORKER_NAME,
        inherited: Sequence[int] = (),
    ) -> None:
        self._scheduler = scheduler
        self._program = program
        # Modules that are imported before the fork, in addition to the engine.
        self._imported_modules = imported
        # The name of the processes, where {} stands for the worker's number.
        self._name = name
        # File descriptors that they inherit.  Complete after the program was pickled.
        self._inherited_fds = inherited

    def start(self) -> None:
        # Imported here to keep `import gristmill` fast.
        from gristmill._engine.stream import PROGRAM_MODULES
        from gristmill._workers import main_module, parent

        main = main_module.description()
        # The launcher finds the parts of `main` among these by their mark.
        modules = (*main, *self._imported_modules)
        parent.configure(ENTRY, PROGRAM_MODULES)
        _core.start_launcher(modules)

        from gristmill._engine import packing  # While the launcher starts.

        blob_fd = packing.pack(self._program)
        try:
            setup = parent.setup(ENTRY, main, name=self._name)
            self._scheduler.start(blob_fd, setup, modules, self._inherited_fds)
        finally:
            os.close(blob_fd)

    def ready(self) -> bool:
        # The supervisor has reported the start of each process.
        return all(alive for _, alive, _ in self._scheduler.processes())

    def receive(self, due: _core.NextResult) -> tuple[Any, Int64Array]:
        return receive_output(self._scheduler, due)

    def activity(self, worker: int) -> str:
        from gristmill._engine import worker_stacks

        return worker_stacks.stacks_of(
            os.fstat(self._scheduler.arena_fd).st_ino, worker
        )

    def death_details(self, worker: int) -> str:
        return ""

    def kill(self, worker: int) -> None:
        self._scheduler.kill(worker)

    def usage(self) -> LocalStats:
        return usage_of(self._scheduler, self._program)

    def close(self) -> None:
        self._scheduler.close()


def receive_output(
    scheduler: _core.Scheduler, due: _core.NextResult
) -> tuple[Any, Int64Array]:
    """Decode the slot of the output that is due.  See `Workers.receive`."""
    element, keys, _ = slot_reader.decode(
        due.address,
        due.bytes,
        due.index,
        lambda: views.SlotView(scheduler.add_view()),
        COPIED_LEAF_BYTES,
    )
    return element, keys


def usage_of(scheduler: _core.Scheduler, program: Any) -> LocalStats:
    """Return the measurements of a scheduler's processes.

    Args:
        scheduler: The scheduler.
        program: The program that they run.  Only its ``stages`` is used.
    """
    workers, texts = [], []
    for (pid, *_), (busy_ns, idle_ns, outputs, nbytes, text) in zip(
        scheduler.processes(), scheduler.counts(), strict=False
    ):
        stats = LocalWorkerStats(pid, busy_ns / 1e9, idle_ns / 1e9, outputs, nbytes)
        workers.append(stats)
        texts.append(text)
    stages = stage_times.mean_times(stage_times.sum_texts(texts))
    return LocalStats(tuple(workers), stages, program.stages)
