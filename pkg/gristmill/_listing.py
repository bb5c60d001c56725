"""What `dir()` and completion list of a module: its public names and nothing else."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping

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


def _has(package: str) -> bool:
    """Whether a package can be imported; imports at most what it lies in."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
