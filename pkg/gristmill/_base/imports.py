"""Calls a function when the program imports a certain module."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import importlib.abc  # Slow to import.

Callback: TypeAlias = str | Callable[[ModuleType], None]


def when_imported(name: str, callback: Callback) -> Callable[[], None]:
    """Call a function with a module, now or when the module is imported.

    Args:
        name: The name of the module.
        callback: The function, or ``"package.module:function"``, which is imported when
            it is called.

    Returns:
        A function that cancels the call for later imports.
    """
    if name in sys.modules:
        _call(callback, sys.modules[name])
    finder = _CallbackFinder(name, callback)
    sys.meta_path.insert(0, finder)

    def cancel() -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(finder)

    return cancel


def _call(callback: Callback, module: ModuleType) -> None:
    if isinstance(callback, str):
        module_name, _, name = callback.partition(":")
        getattr(importlib.import_module(module_name), name)(module)
    else:
        callback(module)


class _CallbackFinder:
    """A finder for one module that calls a function after the module is executed.

    It delegates to the other finders.
    """

    def __init__(self, name: str, callback: Callback) -> None:
        self._name = name
        self._callback = callback

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's spec with a `_CallbackLoader`; None for other modules."""
        if fullname != self._name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            loader: Any = _CallbackLoader(spec.loader, self._callback)
            spec.loader = loader
        return spec


class _CallbackLoader:
    """Wraps a module's own loader, and calls a function after executing the module.

    This has no base class, since importlib.abc is slow to import.
    """

    def __init__(self, loader: importlib.abc.Loader, callback: Callback) -> None:
        self._loader = loader
        self._callback = callback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Create the module with its own loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with its own loader, then call the function."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _call(self._callback, module)
