"""Does something with a module when a program imports it."""

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

Act: TypeAlias = str | Callable[[ModuleType], None]


def when_imported(name: str, act: Act) -> Callable[[], None]:
    """Call a function with a module: at once, or when it has been imported.

    Args:
        name: The module.
        act: The function, or ``"package.module:function"``, which is imported when it
            is called.

    Returns:
        What to call in order not to wait any longer.
    """
    if name in sys.modules:
        _call(act, sys.modules[name])
    waiting = _Waiting(name, act)
    sys.meta_path.insert(0, waiting)

    def cancel() -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(waiting)

    return cancel


def _call(act: Act, module: ModuleType) -> None:
    if isinstance(act, str):
        place, _, name = act.partition(":")
        getattr(importlib.import_module(place), name)(module)
    else:
        act(module)


class _Waiting:
    """Finds one module as the others do, and acts when it has been executed."""

    def __init__(self, name: str, act: Act) -> None:
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
            loader: Any = _Acting(spec.loader, self._act)
            spec.loader = loader
        return spec


class _Acting:
    """A module's own loader, after which something is done with the module.

    It has no base class, since importlib.abc is slow to import.
    """

    def __init__(self, loader: importlib.abc.Loader, act: Act) -> None:
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
        _call(self._act, module)
