"""Finds the latest iterator of a loader, for its `metrics`.

An iterator must end when its user drops it, so nothing here keeps it.
"""

from __future__ import annotations

import weakref
from typing import Any

# Copies of a loader, and pickled ones, must not have its iterator: so this is not an
# attribute of the loader.
_iterators: weakref.WeakKeyDictionary[Any, weakref.ref[Any]]
_iterators = weakref.WeakKeyDictionary()


def set_latest(loader: Any, iterator: Any) -> None:
    """Set the latest iterator of a loader."""
    _iterators[loader] = weakref.ref(iterator)


def metrics_of(loader: Any) -> dict[str, float]:
    """Return the metrics of a loader's latest iterator; empty if there is none."""
    reference = _iterators.get(loader)
    iterator = None if reference is None else reference()
    metrics: dict[str, float] = {}
    if iterator is not None:
        metrics = iterator.report().metrics()
    return metrics
