"""Does something with a module when a program imports it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

__all__ = ["when_imported"]


def when_imported(name: str, act: str) -> None:
    """Call a function with a module: at once, or when it has been imported.

    Args:
        name: The module.
        act: The function, as ``"package.module:function"``: imported when it is called.
    """
    if name in sys.modules:
        pkgutil.resolve_name(act)(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Waiting(name, act))


class _Waiting(importlib.abc.MetaPathFinder):
    """Finds one module as the others do, and acts when it has been executed."""

    def __init__(self, name: str, act: str) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's spec, with a loader that acts; None for other modules."""
        if fullname != self._name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Acting(spec.loader, self._act)
        return spec


class _Acting(importlib.abc.Loader):
    """A module's own loader, after which something is done with the module."""

    def __init__(self, loader: importlib.abc.Loader, act: str) -> None:
        self._loader = loader
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module as its own loader does, then act."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        pkgutil.resolve_name(self._act)(module)
