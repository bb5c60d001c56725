"""Finds out which part of a chain takes how long: reports, tables, pictures.

It imports `_dataset`, which knows nothing of it but `model/observer.py`.  Begin with
`watch.py`, the counters that every iterator has, and `reporting.py`, what becomes of
them.
"""

from types import ModuleType

from gristmill._dataset.model import observer


def observe_datasets(datasets: ModuleType) -> None:
    """Let datasets be looked at; called when they have been imported."""
    from gristmill._observe import face

    observer.install(face)
