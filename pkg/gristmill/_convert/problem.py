"""What the user can do something about, told in one line."""

from __future__ import annotations

import importlib
import os
from typing import Any

# The package on the index of packages, and the extra of gristmill that has it.
EXTRAS = {
    "array_record": ("array-record", "convert"),
    "pyarrow": ("pyarrow", "parquet"),
}


class Problem(Exception):
    """A file, a disk or an option is not as it must be; the text is for the user."""


class Misuse(Problem):
    """The options of a command do not go together."""


class MissingPackage(Problem, ImportError):
    """An optional package is not installed."""


def of_os_error(error: OSError, path: str | os.PathLike[str]) -> Problem:
    """Return the problem that `error` is, met while `path` was in use."""
    where = os.fsdecode(error.filename or path)
    return Problem(f"{where}: {error.strerror or error}.")


def imported(module: str) -> Any:
    """Return a module of an optional package.

    Raises:
        MissingPackage: The package is not installed; the text says how to get it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package, extra = EXTRAS[module.partition(".")[0]]
        raise MissingPackage(
            f"this needs the {package} package. Install it with: pip install"
            f" 'gristmill[{extra}]'"
        ) from error
