"""Every exception that Gristmill defines.

Each one is also the built-in exception that Grain raises in the same place, so
code written for Grain catches it unchanged:

    GristmillError
    ├── ShapeMismatch (ValueError)     elements of one batch cannot be stacked
    ├── WorkerDied (RuntimeError)      a worker process ended and was not replaced
    ├── ArenaFull (MemoryError)        shared memory would pass its limit
    ├── CorruptRecord (ValueError)     a record or its file is damaged
    ├── RemoteError (OSError)          a file behind a URL could not be read
    ├── TooManyErrors (RuntimeError)   more records failed than max_errors allows
    └── StateMismatch (ValueError)     a saved state belongs to another pipeline
"""

from __future__ import annotations

from gristmill._base.listing import listed

__all__ = [
    "ArenaFull",
    "CorruptRecord",
    "GristmillError",
    "RemoteError",
    "ShapeMismatch",
    "StateMismatch",
    "TooManyErrors",
    "WorkerDied",
]


class GristmillError(Exception):
    """Base of the exceptions that Gristmill defines."""


class ShapeMismatch(GristmillError, ValueError):
    """Say that elements of one batch differ in structure or shape."""


class WorkerDied(GristmillError, RuntimeError):
    """Say that a worker process ended; the text names how, and the record."""


class ArenaFull(GristmillError, MemoryError):
    """Say that shared memory is at its limit; the text has need and have."""


class CorruptRecord(GristmillError, ValueError):
    """Say that a record, or the file it is in, is not as it should be.

    Attributes:
        position: Which of a block of records it is, where a block was read.
    """

    position: int | None = None


class TooManyErrors(GristmillError, RuntimeError):
    """Say that more records failed than may be skipped or substituted."""


class RemoteError(GristmillError, OSError):
    """Say that a file behind a URL could not be read; the cause has the reason."""


class StateMismatch(GristmillError, ValueError):
    """Say that a saved state was made by a different pipeline."""


def __dir__() -> list[str]:
    return listed(__all__)
