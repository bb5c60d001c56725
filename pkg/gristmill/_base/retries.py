"""Which errors of far storage pass by themselves, and how long to wait for that.

Clients of storage raise what their HTTP libraries do. None of these is imported
here: an error is judged by its HTTP status, where it has one, by its errno, or by
the names of its classes.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

# "Request Timeout" and "Too Many Requests"; besides all that servers blame
# themselves for.
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

# Errors that say nothing but what their class is called, by the package it is in.
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

# Randomness of the system, because the generators belong to the user.
_random = random.SystemRandom()


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that an error, or what caused it, tells of."""
    return _first(map(_own_status, _chain(error)))


def is_transient(error: BaseException) -> bool:
    """Whether trying again may help: the network or the server is at fault."""
    return bool(_first(map(_verdict, _chain(error))))


def delay_s(error: BaseException, attempt: int, first_s: float, most_s: float) -> float:
    """Return how long to wait after an attempt that failed with `error`, in seconds.

    A random part of `first_s` doubled with every attempt, so that many readers do
    not come back together; as long as the server asks for, if it does. Never more
    than `most_s`.

    Args:
        error: What the attempt raised.
        attempt: Its number, from 1.
        first_s: The longest wait after the first.
        most_s: The longest wait of all.
    """
    longest = min(first_s * 2.0 ** min(attempt - 1, 100), most_s)
    return min(max(_random.uniform(0.0, longest), _asked_for_s(error)), most_s)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what caused it, the outermost first."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _own_status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    # botocore has a dict, Google's client the number as text.
    if isinstance(response, dict):
        return _as_status(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    return _first(  # Asked one by one: some warn of being deprecated.
        _as_status(getattr(holder, name, None))
        for holder in (error, response)
        for name in ("status", "status_code", "code")
    )


def _first(found: Iterable[T | None]) -> T | None:
    return next((each for each in found if each is not None), None)


def _as_status(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and 100 <= value < 600 else None


def _verdict(error: BaseException) -> bool | None:
    """Whether an error is transient; None where only its cause can tell."""
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
    # fsspec's HTTP client calls all missing whose size it could not ask for.
    if error.__cause__ is None and isinstance(error, _PERMANENT_CLASSES):
        return False
    return None


def _asked_for_s(error: BaseException) -> float:
    """Return the wait that the server asked for, 0.0 if it did not."""
    for link in _chain(error):
        for holder in (link, getattr(link, "response", None)):
            headers: Any = getattr(holder, "headers", None)
            value = headers.get("Retry-After") if headers else None
            if isinstance(value, str) and value.isdecimal():
                return float(value)
    return 0.0
