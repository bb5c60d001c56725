"""The public names of a module: those in `dir()`, and those imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

ORBAX = "orbax.checkpoint"


def public_names(
    names: Iterable[str], optional: Mapping[str, str] | None = None
) -> list[str]:
    """Return the public names of a module, sorted.

    Args:
        names: The module's ``__all__``.
        optional: Names that exist only if a package is installed, with that package.
    """
    available = [name for name, package in (optional or {}).items() if _has(package)]
    return sorted({*names, *available})


def lazy_getattr(
    module: str, homes: Mapping[str, str], submodules: str = ""
) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a module that imports names on first use.

    Args:
        module: The name of the module.
        homes: A mapping from the path of a module in gristmill to the names that it
            defines, as ``"Name Other"``.  ``"Name=NameThere"`` if that module uses a
            different name.
        submodules: Names of submodules that are imported on first use.
    """
    definitions = locate_names(homes)
    modules = submodules.split()

    def find(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{module}.{name}")
        if name not in definitions:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        path, name_there = definitions[name]
        value = getattr(importlib.import_module(path), name_there)
        setattr(sys.modules[module], name, value)
        return value

    return find


def locate_names(homes: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the module that defines each name, and the name used there.

    Args:
        homes: See `lazy_getattr`.  An empty path stands for gristmill itself.
    """
    return {
        name: (f"gristmill.{path}".rstrip("."), name_there or name)
        for path, names in homes.items()
        for name, _, name_there in (pair.partition("=") for pair in names.split())
    }


def _has(package: str) -> bool:
    """Return whether a package is installed; import at most its parent packages."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
