"""Remote files that fsspec reads, a range at a time, with retries."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import io
import operator
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from gristmill import _core
from gristmill._base.retries import delay_s, is_transient, status_of
from gristmill.errors import RemoteError
from gristmill.sources._range_caches import cache_of, warn_once
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._requests import (
    FailedRequest,
    Fetch,
    HostRequests,
    WrongSizeError,
    requests_of,
)
from gristmill.sources._urls import file_system_of, host_of
from gristmill.sources._web import WebFile, is_web, with_connections

__all__ = ["RemoteFile", "RemoteStream"]

T = TypeVar("T")

# Keys of fsspec's file info whose values change when the file's content does.
_STAMP_KEYS = (
    "ETag",
    "etag",
    "generation",
    "VersionId",
    "blob_id",
    "md5Hash",
    "Content-MD5",
    "content_md5",
    "Digest",
    "mtime",
    "LastModified",
    "Last-Modified",
    "last_modified",
    "updated",
    "created",
    "ino",
)


class RemoteFile:
    """A remote file whose ranges can be read.

    Any thread may read at any time. A pickled copy opens the file again at its first
    read, and so does a forked child. Both keep the size and the stamps that the file
    had when this object was constructed, so that they can detect changes.

    `sleep` waits the given number of seconds between attempts; tests replace it.
    """

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        options: RemoteOptions | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        self._storage_options = dict(storage_options or {})
        self._options = options or RemoteOptions()
        self._sleep = sleep
        # The id of the process that connected, its file system, the path in it, and a
        # WebFile or None.
        self._connection: tuple[int, Any, str, WebFile | None] | None = None
        self._host = host_of(url)
        self._size, self._stamp = self._retry(
            "its size", self._request_info, lambda: ""
        )

    # Read by the native readers; see `RemoteOptions`.
    path = property(operator.attrgetter("_url"))
    size = property(operator.attrgetter("_size"))
    options = property(operator.attrgetter("_options"))
    gap_bytes = property(operator.attrgetter("_options.gap_bytes"))
    run_bytes = property(operator.attrgetter("_options.run_bytes"))
    tail_bytes = property(operator.attrgetter("_options.tail_bytes"))
    parallel = property(operator.attrgetter("_options.parallel"))

    @property
    def version(self) -> int:
        """A number that changes when the file is written to.

        It is a hash of the storage's stamps, or 0 if the storage has none.
        """
        return _hash_of(repr(sorted(self._stamp.items()))) if self._stamp else 0

    @property
    def cache(self) -> _core.RangeCache | None:
        """The cache for this file's bytes, or None if they are not cached.

        A file without a stamp is not cached, because a change could not be detected.
        """
        return cache_of(self._options) if self._stamp else None

    @property
    def origin(self) -> tuple[int, int, int]:
        """The file's key in the cache: hash of the URL, version and size in bytes."""
        return _hash_of(self._url), self.version, self._size

    @property
    def fetches(self) -> bool:
        """True if `fetch` and `get` can be used, because the file system is async.

        fsspec derives `cat_file` from `_cat_file` in such a file system. Wrappers, such
        as caching file systems, define their own `cat_file`, which must be called.
        """
        filesystem = self._filesystem()[0]
        is_async = getattr(filesystem, "async_impl", False)
        is_derived = "cat_file" in vars(filesystem)
        return (
            is_async and is_derived and not getattr(filesystem, "asynchronous", False)
        )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that runs `get`."""
        loop: asyncio.AbstractEventLoop = self._filesystem()[0].loop
        return loop

    @property
    def requests(self) -> HostRequests:
        """The requests of this process to the file's host."""
        return requests_of(self._host, self._options.parallel)

    def read_range(self, offset: int, size: int) -> bytes:
        """Return the bytes [offset, offset + size)."""
        cache = self.cache
        if cache is None:
            return self._read(offset, size)
        origin = self.origin
        cached = cache.read(origin, offset, size)
        if cached is not None:
            return cached
        begin, count = cache.pages_of(origin, offset, size)
        pages = self._read(begin, count)
        if problem := cache.write(origin, begin, pages):
            self.cache_failed(problem)
        return pages[offset - begin : offset - begin + size]

    def fetch(self, ranges: Sequence[tuple[RemoteFile, int, int]]) -> Fetch:
        """Start reading ranges (file, offset, size); each file's `fetches` is True."""
        return Fetch(ranges)

    async def get(self, offset: int, size: int) -> bytes:
        """Return the answer to one request for [offset, offset + size), in `loop`.

        The answer may have another size. There is no time limit; the caller sets one.
        """
        filesystem, path, web = self._filesystem()
        if web is not None:
            return await web.get(offset, offset + size, self._tag)
        return bytes(await filesystem._cat_file(path, start=offset, end=offset + size))

    def retry_failed(self, offset: int, size: int, failed: FailedRequest) -> bytes:
        """Continue a read whose fetch failed: try again, or raise the final error."""
        error = failed.error
        if isinstance(error, WrongSizeError):
            error = self._wrong_size_error(error.found_bytes, size)
        return self._read(offset, size, (error, failed.attempts))

    def delay_s(self, error: Exception, attempt: int) -> float:
        """Return the time to wait after a failed attempt of a fetch, in seconds."""
        wait_s = self._delay_s(error, attempt)
        if self._sleep is time.sleep:
            return wait_s  # The event loop waits.
        self._sleep(wait_s)
        return 0.0

    def cache_failed(self, problem: str) -> None:
        """Warn that the cache was disabled, and why."""
        warn_once(problem)

    def change(self) -> str:
        """Return how the file changed since it was opened, or "" if it did not.

        Compares size and stamps, as far as the storage has them. Also returns "" if the
        storage does not answer.
        """
        try:
            size, stamp = self._request_info()
        except FileNotFoundError as error:
            return "" if is_transient(error) else "the file is gone"
        except Exception:
            return ""
        if size != self._size:
            return (
                f"the file changed while it was open: it has {size} bytes now,"
                f" {self._size} when it was opened"
            )
        for name, value_at_open in self._stamp.items():
            value_now = stamp.get(name, value_at_open)
            if value_now != value_at_open:
                return (
                    "the file was replaced while it was open: its"
                    f" {name} is {value_now!r}, {value_at_open!r} when it was opened"
                )
        return ""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def __repr__(self) -> str:
        return f"RemoteFile({self._url!r})"

    def _filesystem(self) -> tuple[Any, str, WebFile | None]:
        """Return the connection of this process, without the process id."""
        if self._connection is None or self._connection[0] != os.getpid():
            # Threads that race here create equivalent file systems.
            options = with_connections(self._url, self._storage_options)
            filesystem, path = file_system_of(self._url, options)
            web = WebFile(filesystem, path) if is_web(filesystem) else None
            self._connection = (os.getpid(), filesystem, path, web)
        return self._connection[1:]

    def _timeout_arguments(self, filesystem: Any) -> dict[str, Any]:
        """Return keyword arguments that limit a call's time, if it accepts any."""
        is_async = getattr(filesystem, "async_impl", False)
        return {"timeout": self._options.timeout_s} if is_async else {}

    def _request_info(self) -> tuple[int, dict[str, Any]]:
        """Request the size in bytes and the stamps."""
        filesystem, path, _ = self._filesystem()
        # A cached listing would hide a change.
        filesystem.invalidate_cache(path)
        info = filesystem.info(path, **self._timeout_arguments(filesystem))
        if info.get("type") == "directory":
            raise IsADirectoryError("found a directory, expected a file")
        if info.get("size") is None:
            raise RemoteError(
                "expected the size of the file, found none in the answer of the storage"
            )
        return int(info["size"]), {k: info[k] for k in _STAMP_KEYS if k in info}

    def _read(
        self, offset: int, size: int, failed: tuple[Exception, int] | None = None
    ) -> bytes:
        """Read a range with retries; `failed` is an earlier error and its attempts."""
        if size == 0:
            return b""
        subject = f"bytes {offset} to {offset + size - 1}"
        return self._retry(
            subject, lambda: self._read_once(offset, size), self.change, failed
        )

    def _read_once(self, offset: int, size: int) -> bytes:
        """Wait for a turn, and read a range in one attempt."""
        requests = self.requests
        ticket = requests.wait_for_turn()
        data, failed = b"", False
        try:
            data = self._cat(offset, size)
        except Exception as error:
            failed = is_transient(error)
            raise
        finally:
            requests.end(ticket, len(data), failed=failed)
        if len(data) != size:
            raise self._wrong_size_error(len(data), size)
        return data

    def _cat(self, offset: int, size: int) -> bytes:
        """Return the answer to one request, of any size."""
        filesystem, path, _ = self._filesystem()
        time_limit = self._timeout_arguments(filesystem)
        if self.fetches:
            asyn = importlib.import_module("fsspec.asyn")
            data: bytes = asyn.sync(self.loop, self.get, offset, size, **time_limit)
            return data
        # File systems that open the file for this call would read ahead needlessly.
        arguments = time_limit or {"cache_type": "none"}
        return bytes(
            filesystem.cat_file(path, start=offset, end=offset + size, **arguments)
        )

    @property
    def _tag(self) -> str | None:
        """The ETag that answers must have if they are cached, or None."""
        return None if self.cache is None else self._stamp.get("ETag")

    def _wrong_size_error(self, found_bytes: int, size: int) -> Exception:
        """Return the error for an answer of the wrong size."""
        if found_bytes > size:
            return RemoteError(
                f"expected {size} bytes, found {found_bytes}: the server does not"
                " support range requests. Copy the file to one that does"
            )
        problem = f"expected {size} bytes, found {found_bytes}"
        return RemoteError(problem) if self.change() else ConnectionError(problem)

    def _retry(
        self,
        subject: str,
        call: Callable[[], T],
        change: Callable[[], str],
        failed: tuple[Exception, int] | None = None,
    ) -> T:
        """Return the result of `call`; call it again after transient errors.

        The final error contains `subject` and `change()`. `failed` is as in `_read`.
        """
        error, attempt = failed or (None, 0)
        while True:
            if error is not None:
                self._raise_if_final(error, attempt, subject, change)
                self._sleep(self._delay_s(error, attempt))
            attempt += 1
            try:
                return call()
            except Exception as raised:
                error = raised

    def _delay_s(self, error: Exception, attempt: int) -> float:
        options = self._options
        return delay_s(error, attempt, options.first_delay_s, options.most_delay_s)

    def _raise_if_final(
        self, error: Exception, attempt: int, subject: str, change: Callable[[], str]
    ) -> None:
        """Raise the final error, unless another attempt may succeed."""
        transient = is_transient(error)
        if transient and attempt < self._options.attempts:
            return
        attempts = "the first attempt" if attempt == 1 else f"{attempt} attempts"
        text = (
            f"{self._url}: reading {subject} failed at {attempts}: {_describe(error)}"
        )
        # Do not send another request to a server that failed this often.
        changed = "" if transient else change()
        _raise(error, f"{text}; {changed}" if changed else text)


class RemoteStream(io.RawIOBase):
    """A remote file as a raw, seekable Python stream, for one thread at a time."""

    def __init__(self, file: RemoteFile) -> None:
        self._remote = file
        self._position: int = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._remote.size)[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        size: int = max(0, min(len(buffer), self._remote.size - self._position))
        buffer[:size] = self._remote.read_range(self._position, size)
        self._position += size
        return size


def _hash_of(text: str) -> int:
    """Return a hash of a text, in [0, 2**64)."""
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8])


def _describe(error: Exception) -> str:
    if isinstance(error, (RemoteError, IsADirectoryError)):
        return str(error)
    # fsspec's HTTP client reports every failure as FileNotFoundError.
    reason = error.__cause__ or error
    return f"{type(reason).__name__}: {reason}"


def _raise(error: Exception, text: str) -> NoReturn:
    """Raise `text` as the exception type that fits an error of any library."""
    status = status_of(error)
    if status in (401, 403):
        raise PermissionError(text) from error
    if status in (404, 410):
        raise FileNotFoundError(text) from error
    if status is None and not is_transient(error):
        for kind in (FileNotFoundError, IsADirectoryError, PermissionError):
            if isinstance(error, kind):
                raise kind(text) from error
        if not isinstance(error, OSError):
            error.add_note(text)
            raise error
    raise RemoteError(text) from error
