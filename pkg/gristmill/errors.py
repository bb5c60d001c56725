"""Defines Gristmill's exceptions.

Each one is also a subclass of the built-in exception that Grain raises in its place, so
code written for Grain catches it without changes:

    GristmillError
    ├── ShapeMismatch (ValueError)     elements of one batch cannot be stacked
    ├── WorkerDied (RuntimeError)      a worker process ended and was not replaced
    ├── ArenaFull (MemoryError)        shared memory would pass its limit
    ├── CorruptRecord (ValueError)     a record or its file is damaged
    ├── RemoteError (OSError)          the file at a URL could not be read
    ├── TooManyErrors (RuntimeError)   more records failed than max_errors allows
    └── StateMismatch (ValueError)     a saved state belongs to another pipeline
"""

from __future__ import annotations

from gristmill._base.lazy_names import public_names

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
    """The base class of Gristmill's exceptions.

    Example:
        >>> try:
        ...     list(gristmill.load([np.zeros(2), np.zeros(3)], batch_size=2))
        ... except GristmillError as error:
        ...     print(type(error).__name__)
        ShapeMismatch
    """


class ShapeMismatch(GristmillError, ValueError):
    """Raised if elements of one batch differ in structure or shape.

    Example:
        >>> loader = gristmill.load([np.zeros(2), np.zeros(3)], batch_size=2)
        >>> try:
        ...     next(iter(loader))
        ... except ShapeMismatch:
        ...     print("Crop or pad the elements first.")
        Crop or pad the elements first.
    """


class WorkerDied(GristmillError, RuntimeError):
    """Raised if a worker process died.  The text has the cause and the record.

    Example:
        >>> def batches_of(loader):
        ...     try:
        ...         yield from loader
        ...     except WorkerDied as error:
        ...         raise SystemExit(f"Ask for more memory, or fewer workers: {error}")
        >>> issubclass(WorkerDied, RuntimeError)
        True
    """


class ArenaFull(GristmillError, MemoryError):
    """Raised if shared memory is full.  The text has the bytes needed and available.

    Example:
        >>> def batches_of(loader):
        ...     try:
        ...         yield from loader
        ...     except ArenaFull as error:
        ...         raise SystemExit(f"Buffer less, or raise the limit: {error}")
        >>> issubclass(ArenaFull, MemoryError)
        True
    """


class CorruptRecord(GristmillError, ValueError):
    """Raised if a record, or its file, is damaged.

    Attributes:
        position: The index of the record in its block, if a block was read; else None.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "cut.tfrecord")
        >>> _ = path.write_bytes(b"half a record")
        >>> try:
        ...     list(gristmill.sources.read_tf_records(path))
        ... except CorruptRecord:
        ...     print("Download it again.")
        Download it again.
    """

    position: int | None = None


class TooManyErrors(GristmillError, RuntimeError):
    """Raised if more records failed than `max_errors` allows to skip or substitute.

    Example:
        >>> numbers = gristmill.MapDataset.source([1, 0]).map(lambda x: 1 // x)
        >>> sampler = gristmill.SequentialSampler(2)
        >>> loader = gristmill.DataLoader(
        ...     data_source=numbers, sampler=sampler, on_error="skip", max_errors=0
        ... )
        >>> try:
        ...     list(loader)
        ... except TooManyErrors:
        ...     print("Look at the data.")
        Look at the data.
    """


class RemoteError(GristmillError, OSError):
    """Raised if the file at a URL could not be read.  Its cause has the reason.

    Example:
        >>> def record_of(source, key):
        ...     try:
        ...         return source[key]
        ...     except RemoteError as error:
        ...         raise SystemExit(f"Try again later: {error.__cause__}")
        >>> issubclass(RemoteError, OSError)
        True
    """


class StateMismatch(GristmillError, ValueError):
    """Raised if a saved state belongs to a different pipeline.

    Example:
        >>> state = iter(gristmill.load(range(3))).get_state()
        >>> try:
        ...     iter(gristmill.load(range(4))).set_state(state)
        ... except StateMismatch:
        ...     print("That is a state of other data.")
        That is a state of other data.
    """


def __dir__() -> list[str]:
    return public_names(__all__)
