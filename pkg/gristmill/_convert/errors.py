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


class CommandError(Exception):
    """An error of a command that the user can fix. The message is for the user."""


class ConversionError(CommandError):
    """A file cannot be read or written, or its records cannot be converted."""


class UsageError(CommandError):
    """The options of a command are incompatible with each other or the inputs."""


class MissingPackageError(ConversionError, ImportError):
    """An optional package is not installed."""


def from_os_error(error: OSError, path: str | os.PathLike[str]) -> ConversionError:
    """Return a ConversionError for an OSError that was raised while using `path`."""
    where = os.fsdecode(error.filename or path)
    return ConversionError(f"{where}: {error.strerror or error}.")


def import_optional(module: str) -> Any:
    """Return a module of an optional package.

    Raises:
        MissingPackageError: The package is not installed. The message shows how to
            install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package, extra = EXTRAS[module.partition(".")[0]]
        raise MissingPackageError(
            f"this needs the {package} package. Install it with: pip install"
            f" 'gristmill[{extra}]'"
        ) from error
