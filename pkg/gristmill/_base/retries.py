"""Classifies errors of remote storage as transient or permanent, and computes delays.

Storage clients raise the exceptions of their HTTP libraries. This module imports none
of those libraries. It classifies an error by its HTTP status if it has one, by its
errno, or by the names of its classes.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

# "Request Timeout", "Too Many Requests", and all server errors.
_TRANSIENT_STATUSES = {408, 429, *range(500, 600)}

_TRANSIENT_ERRNOS = {
    socket.EAI_AGAIN,
    *(
        getattr(errno, name)
        for name in (
            "EAGAIN EBUSY ECONNABORTED ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH"
            " EIO ENETDOWN ENETRESET ENETUNREACH EPIPE ETIMEDOUT"
        ).split()
    ),
}

# Transient errors that can be recognized only by the name of their class, by package.
_TRANSIENT_CLASSES = {
    "aiohttp": {"ClientConnectionError", "ClientPayloadError", "ServerTimeoutError"},
    "botocore": {"ConnectionError", "HTTPClientError"},
    "google": {"TransportError"},
    "http": {"IncompleteRead"},
    "httpx": {"TransportError"},
    "requests": {"ChunkedEncodingError", "ConnectionError", "Timeout"},
    "urllib3": {"ProtocolError", "TimeoutError"},
}

_PERMANENT_CLASSES = (
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)

# The system's random numbers, so that the user's global generator is not advanced.
_random = random.SystemRandom()


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an error or of one of its causes, or None."""
    return _first_not_none(map(_own_status, _chain(error)))


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may help: the network or the server is at fault."""
    return bool(_first_not_none(map(_own_transience, _chain(error))))


def delay_s(error: BaseException, attempt: int, first_s: float, max_s: float) -> float:
    """Return the delay before the next attempt, in seconds.

    The delay is random, so that many readers do not retry at the same time. Its upper
    bound doubles with every attempt. If the server requested a longer delay, that is
    returned. The delay never exceeds `max_s`.

    Args:
        error: The exception of the failed attempt.
        attempt: The number of the failed attempt, from 1.
        first_s: The upper bound after the first attempt, in seconds.
        max_s: The upper bound after any attempt, in seconds.
    """
    upper_s = min(first_s * 2.0 ** min(attempt - 1, 100), max_s)
    return min(max(_random.uniform(0.0, upper_s), _retry_after_s(error)), max_s)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its chain of causes, the outermost error first."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _own_status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    # In botocore the response is a dict.  Google's client has the number as text.
    if isinstance(response, dict):
        return _as_status(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    return (
        _first_not_none(  # Lazy, because some of these attributes warn of deprecation.
            _as_status(getattr(holder, name, None))
            for holder in (error, response)
            for name in ("status", "status_code", "code")
        )
    )


def _first_not_none(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _as_status(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and 100 <= value < 600 else None


def _own_transience(error: BaseException) -> bool | None:
    """Return whether an error is transient, or None if that depends on its cause."""
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    for kind in type(error).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ in _TRANSIENT_CLASSES.get(package, ()):
            return True
    status = _own_status(error)
    if status is not None:
        return status in _TRANSIENT_STATUSES
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS:
        return True
    # fsspec's HTTP client raises FileNotFoundError whenever its request for the size
    # fails.  The cause then has the real reason.
    if error.__cause__ is None and isinstance(error, _PERMANENT_CLASSES):
        return False
    return None


def _retry_after_s(error: BaseException) -> float:
    """Return the delay that the server requested, in seconds; 0.0 if it did not."""
    for link in _chain(error):
        for holder in (link, getattr(link, "response", None)):
            headers: Any = getattr(holder, "headers", None)
            value = headers.get("Retry-After") if headers else None
            if isinstance(value, str) and value.isdecimal():
                return float(value)
    return 0.0
