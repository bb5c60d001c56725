"""Finds out which part of a chain takes how long: reports, tables, pictures.

It imports `_dataset`, which knows nothing of it but `model/observer.py`.  Begin with
`watch.py`, which times every iterator now and then, `copying.py`, which has every node
of a chain measured, and `reporting.py`, what becomes of both.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gristmill._dataset.model.observer import Observer


def observe_datasets(datasets: ModuleType) -> None:
    """Have chains of datasets observed; called when `_dataset` has been imported."""
    from gristmill._dataset.model import observer  # Here: it may be what imports this.

    observer.install(_face)


def _face() -> Observer:
    """Return the observer, which is imported when a chain is first iterated over."""
    from gristmill._observe import face

    return face
