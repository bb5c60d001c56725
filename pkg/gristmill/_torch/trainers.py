"""Makes trainers that build loaders by a name build Gristmill's."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch.utils.data

from gristmill._torch.loader import DataLoader

__all__ = ["install", "uninstall"]

# Modules that build loaders, torch's, by the name they imported it under.
_BUILDERS = ("accelerate.data_loader", "transformers.trainer")
_NAME = "DataLoader"


def install(**options: Any) -> None:
    """Let Accelerate and the Hugging Face Trainer build `gristmill.torch.DataLoader`.

    They build torch's class by its name in their own modules, also from a loader that
    is ours.  Where one of them is not imported yet, it is seen to when it is.  A second
    call replaces the options of the first.

    Args:
        **options: Keyword arguments of all loaders with workers that are built so, as
            ``max_restarts=1``: trainers know only torch's arguments.  Not
            ``overlap_epochs``: what trainers' own samplers draw cannot be foreseen.

    Raises:
        TypeError: It is not one of those, or torch's loader has it, too.

    Example:
        >>> install(max_restarts=1)
        >>> uninstall()
    """
    _check(options)
    uninstall()
    hook = _Hook(_builder(options))
    sys.meta_path.insert(0, hook)
    for name in _BUILDERS:
        if name in sys.modules:
            hook.rebind(sys.modules[name])


def uninstall() -> None:
    """Undo `install`; loaders that were built stay what they are."""
    for hook in [found for found in sys.meta_path if isinstance(found, _Hook)]:
        sys.meta_path.remove(hook)
        hook.undo()


def _check(options: dict[str, Any]) -> None:
    torchs = inspect.signature(torch.utils.data.DataLoader).parameters
    own = [
        name
        for name in inspect.signature(DataLoader).parameters
        if name not in torchs and name != "overlap_epochs"
    ]
    for name in options:
        if name not in own:
            raise TypeError(
                f"install() got {name!r}. It takes what trainers cannot pass on:"
                f" {', '.join(own)}. Give the trainer the others."
            )


def _builder(options: dict[str, Any]) -> Callable[..., Any]:
    if not options:
        return DataLoader

    def build(*args: Any, **arguments: Any) -> DataLoader[Any]:
        if arguments.get("num_workers"):
            arguments = {**options, **arguments}
        return DataLoader(*args, **arguments)

    return build


class _Hook(importlib.abc.MetaPathFinder):
    """Rebinds the loader's name in the modules that build loaders.

    Args:
        builder: What the name is to mean.
    """

    def __init__(self, builder: Callable[..., Any]) -> None:
        self._builder = builder

    def rebind(self, module: ModuleType) -> None:
        """Let a module build ours."""
        setattr(module, _NAME, self._builder)

    def undo(self) -> None:
        """Let the modules that are imported build torch's again."""
        for name in _BUILDERS:
            module = sys.modules.get(name)
            if getattr(module, _NAME, None) is self._builder:
                setattr(module, _NAME, torch.utils.data.DataLoader)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a builder as others find it, but rebound when it is executed."""
        if fullname not in _BUILDERS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Rebinding(spec.loader, self)
        return spec


class _Rebinding(importlib.abc.Loader):
    """A module's own loader, after which the name is rebound."""

    def __init__(self, loader: importlib.abc.Loader, hook: _Hook) -> None:
        self._loader = loader
        self._hook = hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, then rebind the name."""
        self._loader.exec_module(module)
        if self._hook in sys.meta_path:
            self._hook.rebind(module)
