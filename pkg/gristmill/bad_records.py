"""Records that fail, and what a loader may do about them.

A record is bad where it cannot be read, or where a step that sees it alone raises.
With ``on_error="skip"`` a loader leaves it out, as a filter would; with
``"substitute"`` another record of its stream takes its place.
"""

from __future__ import annotations

import dataclasses
import operator
import os
from typing import Any, Literal, TypeAlias, get_args

from gristmill._base.checks import check_integer
from gristmill._base.listing import listed

__all__ = ["BadRecord", "BadRecords", "ErrorPolicy"]

OnError: TypeAlias = Literal["raise", "skip", "substitute"]
# Characters of an exception's text that are kept.
MOST_TEXT = 2000


@dataclasses.dataclass(frozen=True)
class ErrorPolicy:
    """What is done about bad records.  See `DataLoader`.

    Args:
        on_error: "raise" their exceptions, "skip" or "substitute" them.
        max_errors: Bad records that an iterator passes over; None for any number.
        quarantine: A file to which a line of JSON is added for each, or None.

    Raises:
        ValueError: An argument is out of range, or has no meaning with "raise".
        TypeError: `max_errors` is no integer, or `quarantine` no path.
        OSError: The file cannot be added to.

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
            # Absolute, because the program may go to another folder meanwhile.
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
        key: What the source was asked for: an int or a str, else its ``repr``.
        index: Number of the record, or of what a flat-map made of it, in the
            sampler's order.
        stream: The stream that it is in, from 0.
        operation: Name of the step that raised, or "read".
        error: Type of the exception.
        message: Its text and that of its cause; a long one is cut.
        substitute: Key of the record that took its place, or None.

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
        count: How many, those before a restored state included.
        last: The last of those that this iterator met, oldest first, 10 at most.

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
    """A record key as JSON can say it."""
    if key is None or isinstance(key, str):
        return key
    try:
        return operator.index(key)
    except TypeError:
        return repr(key)


def describe_error(error: BaseException) -> tuple[str, str]:
    """The name of an exception's type, and its text with that of its cause."""
    text = _text(error)
    if error.__cause__ is not None:
        text = f"{text} (from {_name(error.__cause__)}: {_text(error.__cause__)})"
    return _name(error), text


def _name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        return "(it cannot be printed)"
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "..."


def __dir__() -> list[str]:
    return listed(__all__)
