"""Finds the latest iterator of a loader, for its `metrics`.

An iterator must end when its user drops it, so nothing here keeps it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

# A weak reference to a loader, and one to its latest iterator, by the loader's id: a
# class of a user's loaders may define equality, and have no hashes.  This is not an
# attribute of the loader, because its copies must not have its iterator.
_latest: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}


def set_latest(loader: Any, iterator: Any) -> None:
    """Set the latest iterator of a loader."""
    key = id(loader)

    def forget(_: Any, forget_key: Callable[..., Any] = _latest.pop) -> None:
        forget_key(key, None)

    # The loader's end calls `forget`, before another object gets its id.
    _latest[key] = weakref.ref(loader, forget), weakref.ref(iterator)


def metrics_of(loader: Any) -> dict[str, float]:
    """Return the metrics of a loader's latest iterator; empty if there is none."""
    _, reference = _latest.get(id(loader), (None, None))
    iterator = None if reference is None else reference()
    metrics: dict[str, float] = {}
    if iterator is not None:
        metrics = iterator.report().metrics()
    return metrics
