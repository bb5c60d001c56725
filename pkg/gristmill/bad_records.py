"""Bad records, and how a loader handles them.

A record is bad if it cannot be read, or if a step that sees it alone raises.  With
``on_error="skip"`` a loader leaves it out, like a filter.  With ``"substitute"``,
another record of its stream takes its place.
"""

from __future__ import annotations

import dataclasses
import operator
import os
from typing import Any, Literal, TypeAlias, get_args

from gristmill._base.argument_checks import check_integer
from gristmill._base.lazy_names import public_names

__all__ = ["BadRecord", "BadRecords", "ErrorPolicy"]

OnError: TypeAlias = Literal["raise", "skip", "substitute"]
# The most characters of an exception's text that are kept.
MAX_TEXT_LENGTH = 2000


@dataclasses.dataclass(frozen=True)
class ErrorPolicy:
    """The handling of bad records.  See `DataLoader`.

    Args:
        on_error: "raise" their exceptions, "skip" or "substitute" them.
        max_errors: The most bad records that an iterator passes over; None for any
            number.
        quarantine: A file to which each bad record adds a line of JSON, or None.

    Raises:
        ValueError: An argument is out of range, or has no meaning with "raise".
        TypeError: `max_errors` is not an integer, or `quarantine` is not a path.
        OSError: The file cannot be opened for appending.

    Example:
        >>> ErrorPolicy("skip", max_errors=100)
        ErrorPolicy(on_error='skip', max_errors=100, quarantine=None)
    """

    on_error: OnError = "raise"
    max_errors: int | None = None
    quarantine: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.on_error not in get_args(OnError):
            raise ValueError(
                f"on_error must be one of {get_args(OnError)}, got {self.on_error!r}."
            )
        for name in ("max_errors", "quarantine"):
            value = getattr(self, name)
            if self.on_error == "raise" and value is not None:
                raise ValueError(
                    f'{name}={value!r} has no meaning with on_error="raise", which '
                    'stops at the first bad record. Pass on_error="skip" or '
                    f'"substitute", or leave {name} out.'
                )
        if self.max_errors is not None:
            check_integer("max_errors", self.max_errors)
            if self.max_errors < 0:
                raise ValueError(
                    f"max_errors must be at least 0, got {self.max_errors}. Leave it "
                    "out for no limit."
                )
        if self.quarantine is not None:
            # Absolute, because the program may change its working directory.
            path = os.path.abspath(os.fspath(self.quarantine))
            object.__setattr__(self, "quarantine", path)
            try:
                open(path, "ab").close()
            except OSError as error:
                error.add_note(
                    "while opening the quarantine log. Pass the path of a file, in a "
                    "folder that exists, that this process may write."
                )
                raise


@dataclasses.dataclass(frozen=True)
class BadRecord:
    """One record that failed.

    Attributes:
        key: The key passed to the source: an int or a str, else its ``repr``.
        index: The number of the record, or of its split from a flat-map, in the
            sampler's order.
        stream: The number of its stream, from 0.
        operation: The name of the step that raised, or "read".
        error: The type of the exception.
        message: The texts of the exception and its cause; long ones are cut.
        substitute: The key of the record that took its place, or None.

    Example:
        >>> numbers = gristmill.MapDataset.source([1, 0]).map(lambda x: 1 // x)
        >>> sampler = gristmill.SequentialSampler(2)
        >>> loader = gristmill.DataLoader(
        ...     data_source=numbers, sampler=sampler, on_error="skip"
        ... )
        >>> iterator = iter(loader)
        >>> list(iterator)
        [1]
        >>> bad = iterator.errors.last[0]
        >>> bad.key, bad.operation, bad.error
        (1, 'read', 'ZeroDivisionError')
    """

    key: int | str | None
    index: int
    stream: int
    operation: str
    error: str
    message: str
    substitute: int | str | None = None


@dataclasses.dataclass(frozen=True)
class BadRecords:
    """The bad records that an iterator has passed over.

    Attributes:
        count: Their number, including those before a restored state.
        last: The last bad records of this iterator, oldest first, at most 10.

    Example:
        >>> numbers = gristmill.MapDataset.source([0, 1, 0]).map(lambda x: 1 // x)
        >>> sampler = gristmill.SequentialSampler(3)
        >>> loader = gristmill.DataLoader(
        ...     data_source=numbers, sampler=sampler, on_error="skip"
        ... )
        >>> iterator = iter(loader)
        >>> list(iterator)
        [1]
        >>> bad = iterator.errors
        >>> bad.count, [record.key for record in bad.last]
        (2, [0, 2])
    """

    count: int
    last: tuple[BadRecord, ...]


def describe_key(key: Any) -> int | str | None:
    """Return a record key as a type that JSON can represent."""
    if key is None or isinstance(key, str):
        return key
    try:
        return operator.index(key)
    except TypeError:
        return repr(key)


def describe_error(error: BaseException) -> tuple[str, str]:
    """Return the name of an exception's type, and its text with that of its cause."""
    text = _cut_text(error)
    if error.__cause__ is not None:
        text = (
            f"{text} (from {_type_name(error.__cause__)}: {_cut_text(error.__cause__)})"
        )
    return _type_name(error), text


def _type_name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _cut_text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        return "(it cannot be printed)"
    return text if len(text) <= MAX_TEXT_LENGTH else text[:MAX_TEXT_LENGTH] + "..."


def __dir__() -> list[str]:
    return public_names(__all__)
