"""What the user can do something about, told in one line."""

from __future__ import annotations

import os

__all__ = ["Misuse", "Problem", "of_os_error"]


class Problem(Exception):
    """A file, a disk or an option is not as it must be; the text is for the user."""


class Misuse(Problem):
    """The options of a command do not go together."""


def of_os_error(error: OSError, path: str | os.PathLike[str]) -> Problem:
    """Return the problem that `error` is, met while `path` was in use."""
    where = os.fsdecode(error.filename or path)
    return Problem(f"{where}: {error.strerror or error}.")
