"""Errors that the user can fix, with one-line messages."""

from __future__ import annotations

import importlib
import os
from typing import Any

# The PyPI package of each module, and the extra of gristmill that installs it.
EXTRAS = {
    "array_record": ("array-record", "convert"),
    "pyarrow": ("pyarrow", "parquet"),
}


class Problem(Exception):
    """A problem with a file, a disk or an option. The message is for the user."""


class Misuse(Problem):
    """The options of a command are incompatible with each other or the inputs."""


class MissingPackage(Problem, ImportError):
    """An optional package is not installed."""


def of_os_error(error: OSError, path: str | os.PathLike[str]) -> Problem:
    """Return a Problem for an OSError that was raised while using `path`."""
    where = os.fsdecode(error.filename or path)
    return Problem(f"{where}: {error.strerror or error}.")


def imported(module: str) -> Any:
    """Return a module of an optional package.

    Raises:
        MissingPackage: The package is not installed. The message shows how to install
            it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package, extra = EXTRAS[module.partition(".")[0]]
        raise MissingPackage(
            f"this needs the {package} package. Install it with: pip install"
            f" 'gristmill[{extra}]'"
        ) from error
