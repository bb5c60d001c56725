"""Workers on a Ray cluster: the pipelines, order, draws and states of one machine.

`RayWorkers` says where workers run; a loader or a chain takes it by ``workers=``.

Needs Ray: ``pip install "gristmill[ray]"``.

Example:
    >>> workers = RayWorkers(8, num_cpus=1)
    >>> loader = gristmill.load(source, workers=workers)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gristmill
from gristmill import _core
from gristmill._base.checks import check_integer
from gristmill._base.listing import listed
from gristmill._engine.stream import Runnable
from gristmill._engine.workers import Workers

if TYPE_CHECKING:
    from gristmill._ray.pool import Pool

__all__ = ["RayWorkers"]

# These say how lost actors are replaced, or found, which is Gristmill's to do.
_OWN = frozenset(
    "get_if_exists lifetime max_concurrency max_restarts max_task_retries"
    " namespace".split()
)


# Calls that are kept for slower jobs unless a user says how many.
WINDOW = 64


class RayWorkers:
    """Workers are actors of a Ray cluster, each a process of its own.

    A loader with them gives what it gives on one machine with the same ``worker_count``
    or ``streams``: that number says the order, `actors` only who computes.  States are
    the same, too, so that a run may go on with any number of actors or with none.

    The program is connected to the cluster by ``ray.init()`` if it is not already.  A
    lost actor, or node, costs what it had in work, which others compute; another actor
    is started for it as soon as the cluster has room.

    Programs with the same `name` have their actors in common: ranks of a job, of which
    one that needs more gets more.  Jobs with the same `share` read one stream, of which
    each batch is computed once.  Both are known to the whole cluster, outlive the
    program that was the first, and end some seconds after the last.

    Args:
        actors: How many; None for as many as the cluster has CPUs for when the first
            iterator begins.
        ahead: Calls whose outputs may be computed or in work for each actor, beyond
            what the program has taken; at least 2.
        batches_per_call: How many batches one call of an actor computes, each of the
            next ones of its stream.  A call takes a few milliseconds beside the work,
            so several make batches of some kilobytes faster; large ones want 1.
            Elements that are no batches are computed 16 times as many at once; behind a
            filter, a flat map or packing it is one output a call.
        name: The actors' name, if other programs are to use them, too; they pass the
            same `options`, and there are as many actors as the one wants that wants
            most.  By default that of `share`.
        share: The stream's name, if other jobs are to read it, too, each all of it.
            They pass the same pipeline, `batches_per_call` and `window`.
        window: Calls by which a job may lag behind others that share its stream, whose
            outputs lie in the object store for it.  One that lags more is ended by
            `gristmill.WorkerDied`; the others go on.
        **options: What Ray's ``ActorClass.options`` takes: ``num_cpus`` (by default
            1), ``num_gpus``, ``memory``, ``resources``, ``runtime_env``,
            ``label_selector``, ``scheduling_strategy`` (by default "SPREAD") and more.

    Raises:
        ImportError: Ray is not installed.
        TypeError: An argument has the wrong type, or is not for users to say.
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
                    " CPU of the cluster, and no workers= to compute here."
                )
        check_integer("ahead", ahead)
        if ahead < 2:
            raise ValueError(f"ahead must be at least 2, got {ahead}")
        check_integer("batches_per_call", batches_per_call)
        if batches_per_call < 1:
            raise ValueError(
                f"batches_per_call must be at least 1, got {batches_per_call}"
            )
        _check_name("name", name)
        _check_name("share", share)
        if window is not None:
            check_integer("window", window)
            if window < 1:
                raise ValueError(f"window must be at least 1, got {window}")
            if share is None:
                raise ValueError(
                    "window is for streams that are shared: pass share= with it"
                )
        if own := sorted(_OWN & set(options)):
            raise TypeError(
                f"RayWorkers takes no {own[0]}: it replaces lost actors, and finds"
                " those with a name, itself. Leave it out."
            )
        self._actors = None if actors is None else int(actors)
        self._ahead = int(ahead)
        self._batches_per_call = int(batches_per_call)
        self._name = name
        self._share = share
        self._window = window
        self._options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **options}

    def processes(self) -> int:
        """How many actors there are to be."""
        if self._actors is not None:
            return self._actors
        ray = _import_ray()
        if not ray.is_initialized():
            ray.init()
        there = ray.cluster_resources().get("CPU", 0.0)
        return max(1, int(there // max(1.0, float(self._options["num_cpus"] or 1))))

    def count(self) -> int:
        """How many lanes a scheduler has for the actors: see `gristmill._ray.lanes`."""
        return self._lanes_per_actor * self.processes()

    @property
    def buffer(self) -> int:
        """Units that each lane may be ahead, beyond the two in hand."""
        return self._ahead // self._lanes_per_actor - 2

    @property
    def units_at_once(self) -> int:
        """How many ranges of records one call computes."""
        return self._batches_per_call

    def resized(self, processes: int) -> RayWorkers:
        """The same with another number of actors."""
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
        """Those of a scheduler, see `gristmill._engine.workers.Place`."""
        from gristmill._ray.lanes import RayLanes

        if isinstance(before, RayLanes):
            return before.followed_by(scheduler, self.processes())
        return RayLanes(scheduler, self._pool(program))

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self._options.items())
        own = f"ahead={self._ahead}, batches_per_call={self._batches_per_call}"
        for name in ("name", "share", "window"):
            if (value := getattr(self, f"_{name}")) is not None:
                own += f", {name}={value!r}"
        return f"RayWorkers({self._actors}, {own}{given})"

    def _pool(self, program: Runnable) -> Pool:
        """What asks the actors."""
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
            # All jobs have asked for so many before they take one.
            window=window + self._ahead * count,
            parts={"batches_per_call": self._batches_per_call, "window": window},
            version=gristmill.__version__,
        )

    @property
    def _lanes_per_actor(self) -> int:
        # With two, one unit is computed while the next one is on its way.
        return 2 if self._ahead >= 4 else 1


def _check_name(argument: str, name: object) -> None:
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f"{argument} must be a string, and not empty, got {name!r}")


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
    return listed(__all__)
