"""Imports optional packages when they are needed, or says how to get them."""

from __future__ import annotations

import importlib
from typing import Any

from gristmill._convert.problem import Problem

__all__ = ["MissingPackage", "imported"]

# The package on the index of packages, and the extra of gristmill that has it.
EXTRAS = {
    "array_record": ("array-record", "convert"),
    "pyarrow": ("pyarrow", "parquet"),
}


class MissingPackage(Problem, ImportError):
    """An optional package is not installed."""


def imported(module: str) -> Any:
    """Return a module of an optional package.

    Raises:
        MissingPackage: The package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package, extra = EXTRAS[module.partition(".")[0]]
        raise MissingPackage(
            f"this needs the {package} package. Install it with: pip install"
            f" 'gristmill[{extra}]'"
        ) from error
