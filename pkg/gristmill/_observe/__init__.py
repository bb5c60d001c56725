"""Measures how long each part of a pipeline takes: reports, tables, pictures.

It imports `_dataset`, which calls it only through the protocol of `model/observer.py`.
Begin with `watch.py`, which times some calls of every iterator, `measured_copy.py`,
which copies a chain to measure every node, and `reporting.py`, which makes reports of
both.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gristmill._dataset.model.observer import Observer


def observe_datasets(datasets: ModuleType) -> None:
    """Observe chains of datasets; called after `_dataset` is imported."""
    from gristmill._dataset.model import observer  # It may import this package.

    observer.set_observer(_api)


def _api() -> Observer:
    """Return the observer, which is imported when a chain is first iterated over."""
    from gristmill._observe import api

    return api
