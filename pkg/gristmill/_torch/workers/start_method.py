"""How the workers of a torch loader start: as torch's do, unless asked otherwise."""

from __future__ import annotations

import functools
import sys
import warnings
from multiprocessing.context import SpawnContext
from typing import Any

import torch.multiprocessing


class LauncherContext(SpawnContext):
    """Stands for Gristmill's launcher among the contexts of `multiprocessing`.

    Workers are forks of a clean process that has imported torch.  Locks and queues are
    those of "spawn", and so are the workers of a loader of torch's with this context.
    """

    _name = "launcher"


def default() -> Any:
    """What has the program's own start method, which torch uses: a context, or like it.

    A program that has initialised JAX gets the launcher in place of a fork: JAX has
    threads, and forks of such a process are known to wait for ever for their locks.
    """
    if torch.multiprocessing.get_start_method() == "fork" and _has_jax_begun():
        _warn_of_jax()
        return LauncherContext()
    return torch.multiprocessing


def _has_jax_begun() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    begun = getattr(bridge, "backends_are_initialized", None)
    return begun is not None and bool(begun())


@functools.cache  # Once.
def _warn_of_jax() -> None:
    warnings.warn(
        "JAX is initialised, and a fork of its process may wait for ever: workers"
        " are forks of a launcher process, which has nothing that this program"
        ' has set. Say multiprocessing_context="launcher" to ask for it, or "fork"'
        " to fork all the same.",
        stacklevel=9,
    )
