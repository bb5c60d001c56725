"""Workers on a Ray cluster, with the same order, random draws and states as locally.

Pass a `RayWorkers` to a loader or a chain as ``workers=``.

Needs Ray: ``pip install "gristmill[ray]"``.

Example:
    >>> workers = RayWorkers(8, num_cpus=1)
    >>> loader = gristmill.load(source, workers=workers)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gristmill
from gristmill import _core
from gristmill._base.argument_checks import check_integer
from gristmill._base.lazy_names import public_names
from gristmill._engine.stream import Runnable
from gristmill._engine.workers import Workers

if TYPE_CHECKING:
    from gristmill._pool.pool import CalledPool

__all__ = ["RayWorkers"]

# Options about replacing lost actors and finding named ones, which Gristmill does.
_RESERVED_OPTIONS = frozenset(
    "get_if_exists lifetime max_concurrency max_restarts max_task_retries"
    " namespace".split()
)


# The default of `window`: calls whose outputs are kept for slower jobs.
WINDOW = 64


class RayWorkers:
    """Workers that are actors of a Ray cluster; each is a process.

    A loader with these workers returns the same outputs as on one machine with the same
    ``worker_count`` or ``streams``.  That number defines the order, and `actors` only
    the number of processes.  States are the same, too, so a run can continue with any
    number of actors, or without actors.

    If the program is not connected to a cluster, ``ray.init()`` is called.  If an actor
    or a node is lost, other actors compute its unfinished outputs again, and another
    actor is started as soon as the cluster has room.

    Programs with the same `name` share their actors.  The programs may be the ranks of
    a job; one that needs more computation gets more.  Jobs with the same `share` read
    one stream, and each of its batches is computed once.  Both names are visible in the
    whole cluster.  Shared actors outlive the program that started them, and end some
    seconds after the last program.

    Args:
        actors: The number of actors; None for as many as the cluster has CPUs for when
            the first iterator begins.
        ahead: Calls for each actor whose outputs may be finished or being computed,
            beyond the outputs that the program has taken; at least 2.
        batches_per_call: The number of batches that one call of an actor computes, the
            next ones of its stream.  A call takes a few milliseconds in addition to the
            work, so several batches in a call are faster for batches of some kilobytes;
            use 1 for large ones.  Without batches, a call computes 16 times as many
            elements.  After a filter, a flat map or packing, a call computes one
            output.
        name: The name of the actors, to share them with other programs.  All must pass
            the same `options`.  The number of actors is the largest that any of them
            asks for.  By default it is the name in `share`.
        share: The name of the stream, to share it with other jobs; each reads all of
            it.  All must pass the same pipeline, `batches_per_call` and `window`.
        window: Calls by which a job may lag the others that share its stream.  Their
            outputs are kept in the object store for it.  A job that lags more ends with
            `gristmill.WorkerDied`; the others continue.
        **options: Arguments of Ray's ``ActorClass.options``: ``num_cpus`` (by default
            1), ``num_gpus``, ``memory``, ``resources``, ``runtime_env``,
            ``label_selector``, ``scheduling_strategy`` (by default "SPREAD") and more.

    Raises:
        ImportError: Ray is not installed.
        TypeError: An argument has the wrong type, or is an option of Ray that
            Gristmill sets itself.
        ValueError: An argument is out of range.

    Example:
        >>> workers = RayWorkers(8, num_cpus=2)
        >>> ds = gristmill.MapDataset.range(64).to_iter_dataset().batch(8)
        >>> list(ds.mp_prefetch(workers=workers))  # doctest: +SKIP
    """

    def __init__(
        self,
        actors: int | None = None,
        *,
        ahead: int = 4,
        batches_per_call: int = 1,
        name: str | None = None,
        share: str | None = None,
        window: int | None = None,
        **options: Any,
    ) -> None:
        _import_ray()
        if actors is not None:
            check_integer("actors", actors)
            if actors < 1:
                raise ValueError(
                    f"actors must be at least 1, got {actors}. Pass None for one per"
                    " CPU of the cluster, or leave out workers= to compute in this"
                    " process."
                )
        check_integer("ahead", ahead)
        if ahead < 2:
            raise ValueError(f"ahead must be at least 2, got {ahead}.")
        check_integer("batches_per_call", batches_per_call)
        if batches_per_call < 1:
            raise ValueError(
                f"batches_per_call must be at least 1, got {batches_per_call}."
            )
        _check_name("name", name)
        _check_name("share", share)
        if window is not None:
            check_integer("window", window)
            if window < 1:
                raise ValueError(f"window must be at least 1, got {window}.")
            if share is None:
                raise ValueError(
                    f"window={window} needs share, the name of a shared stream, got"
                    " None. Pass share= with it, or leave window out."
                )
        if reserved := sorted(_RESERVED_OPTIONS & set(options)):
            raise TypeError(
                f"RayWorkers does not take {reserved[0]}, because it replaces lost"
                " actors and finds named ones itself. Leave it out."
            )
        self._actors = None if actors is None else int(actors)
        self._ahead = int(ahead)
        self._batches_per_call = int(batches_per_call)
        self._name = name
        self._share = share
        self._window = window
        self._options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **options}

    def processes(self) -> int:
        """Return the number of actors to run."""
        if self._actors is not None:
            return self._actors
        ray = _import_ray()
        if not ray.is_initialized():
            ray.init()
        cluster_cpus = ray.cluster_resources().get("CPU", 0.0)
        return max(
            1, int(cluster_cpus // max(1.0, float(self._options["num_cpus"] or 1)))
        )

    def count(self) -> int:
        """Return a scheduler's number of lanes, see `gristmill._pool.lanes`."""
        return self._lanes_per_actor * self.processes()

    @property
    def buffer(self) -> int:
        """Units that each lane may compute ahead, besides the two that it holds."""
        return self._ahead // self._lanes_per_actor - 2

    @property
    def units_at_once(self) -> int:
        """The number of record ranges that one call computes."""
        return self._batches_per_call

    def resized(self, processes: int) -> RayWorkers:
        """Return the same workers with another number of actors.

        Args:
            processes: The number of actors, at least 1.

        Returns:
            The new workers.
        """
        return RayWorkers(
            processes,
            ahead=self._ahead,
            batches_per_call=self._batches_per_call,
            name=self._name,
            share=self._share,
            window=self._window,
            **self._options,
        )

    def workers(
        self, scheduler: _core.Scheduler, program: Runnable, before: Workers | None
    ) -> Workers:
        """Return a scheduler's workers, see `_engine.workers.WorkerBackend`.

        Args:
            scheduler: The scheduler of the run.
            program: The program that each actor computes.
            before: The workers of the previous run, which may be reused, or None.

        Returns:
            The workers, which have started.
        """
        from gristmill._pool.lanes import CallingLanes, PoolLanes

        if isinstance(before, PoolLanes):
            return before.followed_by(scheduler, self.processes())
        return PoolLanes(CallingLanes(scheduler, self._pool(program)))

    def __repr__(self) -> str:
        options = "".join(
            f", {name}={value!r}" for name, value in self._options.items()
        )
        arguments = f"ahead={self._ahead}, batches_per_call={self._batches_per_call}"
        for name in ("name", "share", "window"):
            if (value := getattr(self, f"_{name}")) is not None:
                arguments += f", {name}={value!r}"
        return f"RayWorkers({self._actors}, {arguments}{options})"

    def _pool(self, program: Runnable) -> CalledPool:
        """Return the pool that calls the actors."""
        from gristmill._ray.actor_pool import ActorPool
        from gristmill._ray.hub_pool import HubPool

        count = self.processes()
        if self._name is None and self._share is None:
            return ActorPool(program, count, self._options)
        window = WINDOW if self._window is None else self._window
        return HubPool(
            program,
            count,
            self._options,
            name=self._name or self._share or "",
            share=self._share or "",
            # Jobs request up to `ahead` calls for each actor before they take one.
            window=window + self._ahead * count,
            parts={"batches_per_call": self._batches_per_call, "window": window},
            version=gristmill.__version__,
        )

    @property
    def _lanes_per_actor(self) -> int:
        # With two lanes, one unit is computed while the next one is in transit.
        return 2 if self._ahead >= 4 else 1


def _check_name(argument: str, name: object) -> None:
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f"{argument} must be a str that is not empty, got {name!r}.")


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            "RayWorkers needs the ray package. Install it with: pip install"
            " 'gristmill[ray]'"
        ) from error
    return ray


def __dir__() -> list[str]:
    return public_names(__all__)
