"""Finds the latest iterator of a loader, for its `metrics`.

An iterator must end when its user drops it, so nothing here keeps it.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

# The loader and its iterator, by the loader's `id`: a user's class may make equal or
# unhashable loaders.  Copies of a loader, and pickled ones, must not have its iterator:
# so this is not an attribute of the loader.
_references: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}


def set_latest(loader: Any, iterator: Any) -> None:
    """Set the latest iterator of a loader."""
    key = id(loader)
    forget = functools.partial(_forget, _references, key)
    _references[key] = weakref.ref(loader, forget), weakref.ref(iterator)


def _forget(references: dict[int, Any], key: int, _: Any) -> None:
    # An argument, because globals may be gone when the program ends.
    references.pop(key, None)


def metrics_of(loader: Any) -> dict[str, float]:
    """Return the metrics of a loader's latest iterator; empty if there is none."""
    references = _references.get(id(loader))
    iterator = None if references is None else references[1]()
    metrics: dict[str, float] = {}
    if iterator is not None:
        metrics = iterator.report().metrics()
    return metrics
