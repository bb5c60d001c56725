"""The public names of a module: what `dir()` lists, and those found when first used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

ORBAX = "orbax.checkpoint"


def listed(
    names: Iterable[str], optional: Mapping[str, str] | None = None
) -> list[str]:
    """The public names of a module, sorted.

    Args:
        names: Its ``__all__``.
        optional: Names that exist only where a package is installed, with the package.
    """
    found = [name for name, package in (optional or {}).items() if _has(package)]
    return sorted({*names, *found})


def lazily(
    module: str, homes: Mapping[str, str], submodules: str = ""
) -> Callable[[str], Any]:
    """A module's ``__getattr__``, which imports what has a name when it is used.

    Args:
        module: Its name.
        homes: By the path of a module in gristmill the names that it has, as
            ``"Name Other"``; ``"Name=Theirs"`` where that module calls it differently.
        submodules: Names of modules in this one, to be imported.
    """
    places = places_of(homes)
    modules = submodules.split()

    def find(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{module}.{name}")
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, theirs = places[name]
        found = getattr(importlib.import_module(home), theirs)
        setattr(sys.modules[module], name, found)
        return found

    return find


def places_of(homes: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Where each name is: the module, and what that calls it.

    Args:
        homes: As for `lazily`; an empty path is gristmill itself.
    """
    return {
        name: (f"gristmill.{home}".rstrip("."), theirs or name)
        for home, names in homes.items()
        for name, _, theirs in (pair.partition("=") for pair in names.split())
    }


def _has(package: str) -> bool:
    """Whether a package can be imported; imports at most what it lies in."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
