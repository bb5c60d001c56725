"""Notes about the origin of exceptions in the user's code."""

from __future__ import annotations

from typing import Any, Self, TypeVar

import numpy as np

E = TypeVar("E", bound=BaseException)


class ErrorLocation(str):
    """A note on an exception about the step that raised it, and its record.

    It is a str with the same information in attributes.  Pickling keeps only the text.
    """

    __slots__ = ("key", "operation", "record_index")

    operation: str | None  # The step that raised; None if reading raised.
    key: Any  # The record's key.
    record_index: int  # The record's number in the sampler's order.

    def __new__(cls, operation: str | None, key: Any, index: int) -> Self:
        action = "reading" if operation is None else f"{operation} processed"
        self = super().__new__(cls, f"while {action} record {key} (index {index})")
        self.operation = operation
        self.key = key
        self.record_index = index
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


def as_failure(error: E, step_name: object) -> E | RuntimeError:
    """Return the exception to raise for an exception of a step.

    StopIteration would end the data silently.  It is replaced by a RuntimeError, like
    in a generator.
    """
    if not isinstance(error, StopIteration):
        return error
    failure = RuntimeError(f"{step_name} raised StopIteration")
    failure.__cause__ = error
    return failure


def as_missing_seed_error(error: Exception, step_name: object) -> Exception:
    """Return the exception to raise for an exception of a step without a generator.

    Like Grain, a loader passes None to random steps if its sampler has no seed.  Steps
    that draw nothing still work, so only the first draw is an error.  Returns other
    exceptions unchanged.
    """
    cause = error.__cause__ if isinstance(error, ValueError) else error
    if (
        not isinstance(cause, AttributeError)
        or cause.obj is not None
        or not hasattr(np.random.Generator, cause.name or "")
    ):
        return error
    failure = ValueError(
        f"`{step_name}` requires a seed. Its generator `rng` is None, because the"
        " sampler has no seed. Please pass seed= to the sampler, or to load()."
    )
    failure.__cause__ = error
    return failure


def location_of(error: BaseException) -> ErrorLocation | None:
    """Return the last location that was noted on an exception, or None."""
    notes = getattr(error, "__notes__", ())
    locations = (note for note in reversed(notes) if isinstance(note, ErrorLocation))
    return next(locations, None)
