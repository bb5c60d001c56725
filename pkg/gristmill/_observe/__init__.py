"""Finds out which part of a chain takes how long: reports, tables, pictures.

It imports `_dataset`, which knows nothing of it but `model/observer.py`.  Begin with
`watch.py`, which times every iterator now and then, `copying.py`, which has every node
of a chain measured, and `reporting.py`, what becomes of both.
"""

import importlib
from types import ModuleType
from typing import Any, cast


def observe_datasets(datasets: ModuleType) -> None:
    """Let datasets be looked at; called when they have been imported."""
    from gristmill._dataset.model import observer  # Here: it may be what imports this.

    observer.install(lambda: cast(Any, importlib.import_module(f"{__name__}.face")))
