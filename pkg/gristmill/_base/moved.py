"""Finds private modules by the names that pickles of earlier releases have for them.

A class is pickled by the name of its module.  In version 0.1 the modules of sources,
transforms and datasets lay one folder higher.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

# The folders in which a module of a package may be.
_FOLDERS = {
    "": ("sources", "transforms"),
    "._dataset": ("nodes", "parallel", "model"),
}
# What has the classes of a module that is there no more.
_TAKEN_IN = {
    "arithmetic": "pipeline",
    "cache": "repeat",
    "factories": "map_dataset",
    "filter": "map",
    "limit": "repeat",
    "opening": "observer",
    "pack_and_batch": "packing",
    "padding": "batch",
    "rng_pool": "map",
    "rows": "batch",
    "seed": "with_options",
}


# Modules that moved later, by the names that they had.
_RENAMED = {
    "_dataset.model.iter_factories": "_dataset.model.iter_dataset",
    "_observe.report": "_base.report",
}


def find_moved_modules() -> None:
    """Let imports by the old names find the modules."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())  # Last: asked for what nobody has.


class _Finder:
    """Imports a module where it is, and gives it the old name as well.

    It has no base class, since importlib.abc is slow to import.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module that has moved; None for any other."""
        package, _, name = fullname.rpartition(".")
        if not package.startswith("gristmill"):
            return None
        loader: Any = self
        if renamed := _RENAMED.get(fullname.removeprefix("gristmill.")):
            place = f"gristmill.{renamed}"
            return importlib.machinery.ModuleSpec(fullname, loader, origin=place)
        for folder in _FOLDERS.get(package.removeprefix("gristmill"), ()):
            place = f"{package}.{folder}.{_TAKEN_IN.get(name, name)}"
            if importlib.util.find_spec(place) is not None:
                return importlib.machinery.ModuleSpec(fullname, loader, origin=place)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Nothing of its own: a module is made, and then replaced."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module that is meant in its place."""
        spec = module.__spec__
        assert spec is not None and spec.origin is not None
        sys.modules[spec.name] = importlib.import_module(spec.origin)
