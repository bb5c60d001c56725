"""Who computes the units of a scheduler: what all kinds of workers do, and processes.

A `Place` says where workers run; it brings `Workers` for each scheduler.  The scheduler
names them by number, leases units to them and is told by them, or by the supervisor,
who started and who ended: so all of order, positions and restarts is its business.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gristmill import _core
from gristmill._base.checks import check_integer, kind
from gristmill._base.grain_names import WORKER_NAME
from gristmill._base.types import Int64Array
from gristmill._engine import stage_times
from gristmill._engine.usage import NearUsage, NearWorker, Usage
from gristmill._hot import slot_reader, views

if TYPE_CHECKING:
    from gristmill._engine.stream import Runnable

# The module that workers of the launcher run; see `gristmill._workers.launcher`.
ENTRY = "gristmill._engine.worker"

COPIED_LEAF_BYTES = 16 << 10


class Workers(Protocol):
    """The workers of one scheduler."""

    def start(self) -> None:
        """Bring the workers, without waiting for them.

        Raises:
            Exception: Whatever pickling the program raised.
        """

    def ready(self) -> bool:
        """Whether all have started that are to, or as many as there is room for."""

    def received(self, due: _core.NextResult) -> tuple[Any, Int64Array]:
        """The element of an output that is due, and its keys; large arrays are views.

        Of an output that is an error it is what the worker sent in its place.
        """

    def doing(self, worker: int) -> str:
        """What a worker does now, for people."""

    def told(self, worker: int) -> str:
        """What is known of the end of a worker beyond its wait status; may be empty."""

    def kill(self, worker: int) -> None:
        """End a worker that does not answer; another takes its number."""

    def usage(self) -> Usage | NearUsage | None:
        """What they were measured to do; None where nobody measures."""

    def close(self) -> None:
        """End all.  Arrays that were delivered stay valid."""


class Place(Protocol):
    """Where workers run."""

    def processes(self) -> int:
        """How many processes compute there."""

    def count(self) -> int:
        """How many workers a scheduler is to have there, at most."""

    @property
    def buffer(self) -> int:
        """Units that each may be ahead, beyond the two in hand."""

    @property
    def units_at_once(self) -> int:
        """How many ranges of records make one unit there."""

    def resized(self, processes: int) -> Place:
        """The same place with another number of processes."""

    def workers(
        self, scheduler: _core.Scheduler, program: Runnable, before: Workers | None
    ) -> Workers:
        """Those of a scheduler; they compute the streams of `program`.

        Where they follow others of this place, those are `before`, which may hand over
        what they have.
        """


def check_place(workers: object) -> None:
    """Refuse what a loader's or a chain's `workers` cannot be."""
    if workers is not None and not hasattr(workers, "workers"):
        raise TypeError(
            f"workers must be a gristmill.ray.RayWorkers or None, got {kind(workers)}."
            " How many processes of this machine compute is said by worker_count, or"
            " by num_workers."
        )


def check_workers(count: int) -> None:
    """Refuse what `set_workers` cannot be asked for."""
    check_integer("count", count, " It is how many workers there are to be.")
    if count < 1:
        raise ValueError(
            f"set_workers needs at least 1 worker, got {count}. To compute in your own"
            " process, save a state and restore it there."
        )


class LauncherWorkers:
    """Processes that the launcher's zygote forks, watched by the supervisor."""

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
        # What they find imported beside the engine.
        self._imported = imported
        # Name of the processes; {} is the worker's number.
        self._name = name
        # Descriptors that they get, known when the program has been pickled.
        self._inherited = inherited

    def start(self) -> None:
        # Imported here because `import gristmill` should take no time for workers.
        from gristmill._engine.stream import PROGRAM_MODULES
        from gristmill._workers import main_module, parent

        main = main_module.description()
        modules = (*main, *self._imported)
        parent.configure(ENTRY, PROGRAM_MODULES)
        _core.start_launcher(modules)

        from gristmill._engine import packing  # While the launcher starts.

        blob_fd = packing.pack(self._program)
        try:
            setup = parent.setup(ENTRY, main, name=self._name)
            self._scheduler.start(blob_fd, setup, modules, self._inherited)
        finally:
            os.close(blob_fd)

    def ready(self) -> bool:
        return all(alive for _, alive, _ in self._scheduler.processes())

    def received(self, due: _core.NextResult) -> tuple[Any, Int64Array]:
        return received(self._scheduler, due)

    def doing(self, worker: int) -> str:
        from gristmill._engine import stall

        return stall.stack_of(os.fstat(self._scheduler.arena_fd).st_ino, worker)

    def told(self, worker: int) -> str:
        return ""

    def kill(self, worker: int) -> None:
        self._scheduler.kill(worker)

    def usage(self) -> NearUsage:
        return usage_of(self._scheduler, self._program)

    def close(self) -> None:
        self._scheduler.close()


def received(
    scheduler: _core.Scheduler, due: _core.NextResult
) -> tuple[Any, Int64Array]:
    """What the slot of an output that is due holds, see `Workers.received`."""
    element, keys, _ = slot_reader.decode(
        due.address,
        due.bytes,
        due.index,
        lambda: views.SlotView(scheduler.hold()),
        COPIED_LEAF_BYTES,
    )
    return element, keys


def usage_of(scheduler: _core.Scheduler, program: Any) -> NearUsage:
    """What the processes of a scheduler have measured of themselves.

    `program` is what they run, as far as it has ``stages``.
    """
    workers, texts = [], []
    for (pid, *_), (busy_ns, idle_ns, outputs, size, text) in zip(
        scheduler.processes(), scheduler.counts(), strict=False
    ):
        near = NearWorker(pid, busy_ns / 1e9, idle_ns / 1e9, outputs, size)
        workers.append(near)
        texts.append(text)
    stages = stage_times.each(stage_times.told(texts))
    return NearUsage(tuple(workers), stages, program.stages)
