"""The start methods of a torch loader's workers; by default those of torch."""

from __future__ import annotations

import functools
import sys
import warnings
from multiprocessing.context import SpawnContext
from typing import Any

import torch.multiprocessing


class LauncherContext(SpawnContext):
    """A `multiprocessing` context that selects Gristmill's launcher.

    Workers are forks of a clean process that has imported torch.  Locks and queues are
    those of "spawn".  One of torch's own loaders with this context spawns its workers.
    """

    _name = "launcher"


def default() -> Any:
    """Return a context, or a similar module, with the program's own start method.

    If the program has initialized JAX, the launcher replaces "fork": JAX has threads,
    and a fork of such a process may wait forever for a lock of theirs.
    """
    if torch.multiprocessing.get_start_method() == "fork" and _is_jax_initialized():
        _warn_of_jax()
        return LauncherContext()
    return torch.multiprocessing


def _is_jax_initialized() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_initialized = getattr(bridge, "backends_are_initialized", None)
    return is_initialized is not None and bool(is_initialized())


@functools.cache  # Warn once.
def _warn_of_jax() -> None:
    warnings.warn(
        "JAX is initialized, and a fork of this process may deadlock. Workers are"
        " therefore forks of a launcher process, which does not have this program's"
        ' variables. Pass multiprocessing_context="launcher" to choose that'
        ' explicitly, or "fork" to fork anyway.',
        stacklevel=9,  # The caller of ``iter(loader)``.
    )
