"""Files behind fsspec URLs, read a range at a time, with retries."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import io
import operator
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from gristmill._base.checks import check_integer
from gristmill._base.retries import delay_s, is_transient, status_of
from gristmill.errors import RemoteError

__all__ = [
    "RemoteFile",
    "RemoteOptions",
    "RemoteStream",
    "file_system_of",
    "glob_url",
    "is_url",
]

T = TypeVar("T")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[A-Za-z][A-Za-z0-9+.-]*::")

# What file systems say of a file that changes when its content does.
_STAMPS = (
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


def is_url(path: str) -> bool:
    """Whether `path` is for fsspec to read, and no path of this machine's files.

    Example:
        >>> is_url("gs://bucket/file"), is_url("simplecache::http://host/file")
        (True, True)
        >>> is_url("/data/file"), is_url("data/a:b")
        (False, False)
    """
    return _URL.match(path) is not None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """Say how files behind URLs are read.

    Args:
        attempts: How often a read is tried when the network or the server fails; at
            least 1. What will not pass by itself, such as a missing file or missing
            rights, fails at the first attempt.
        first_delay_s: The longest wait after the first attempt, in seconds. It
            doubles with each one; how much of it is waited is random.
        most_delay_s: The longest wait of all, in seconds.
        timeout_s: How long an attempt may take, in seconds; then it counts as failed.
            File systems of fsspec that are not asynchronous, such as ``hf://``, have
            limits of their own instead.
        gap_bytes: Records that lie at most this far apart are read together.
        run_bytes: Bytes of one request for several records, at most.
        tail_bytes: What is read of the end of a file to find its index. An index
            that is longer costs one more request.
        parallel: How many requests one read may make at a time; all reads of a
            process together make at most 64.

    Raises:
        TypeError: A count is no int.
        ValueError: A value is out of range.

    Example:
        >>> RemoteOptions(attempts=3).attempts
        3
    """

    attempts: int = 6
    first_delay_s: float = 0.1
    most_delay_s: float = 10.0
    timeout_s: float = 60.0
    gap_bytes: int = 128 << 10
    run_bytes: int = 2 << 20
    tail_bytes: int = 512 << 10
    parallel: int = 32

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not name.endswith("_s"):
                check_integer(name, value)
            if not value >= least:
                raise ValueError(f"{name} is {value}, but must be at least {least}.")
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s is {self.timeout_s}, but must be above 0.")


_LEAST = {
    "attempts": 1,
    "first_delay_s": 0,
    "most_delay_s": 0,
    "gap_bytes": 0,
    "run_bytes": 1,
    "tail_bytes": 0,
    "parallel": 2,
}


def file_system_of(url: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it."""
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise ImportError(
            f"Reading {url} needs the fsspec package. Install it with:"
            " pip install 'gristmill[remote]'"
        ) from error
    try:
        system, path = core.url_to_fs(url, **storage_options)
    except ImportError as error:
        raise ImportError(
            f"Reading {url} needs a package that is not installed: {error}. Install"
            " it, or what http:// and https:// need with: pip install"
            " 'gristmill[remote]'"
        ) from error
    return system, path


class RemoteFile:
    """Read ranges of a file behind a URL.

    Any threads may read at once. A pickled file is opened where it is unpickled,
    when it is first read, and still knows what it looked like at the start; so does
    one in a forked child.

    `sleep` waits so many seconds between attempts.

    Raises:
        FileNotFoundError: There is no such file.
        PermissionError: The file may not be read.
        IsADirectoryError: It is a directory.
        RemoteError: The storage failed otherwise; its own error is the cause.
        ImportError: fsspec, or what it needs for such URLs, is not installed.
        ValueError: fsspec knows no such URLs.
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
        self._opened: tuple[int, Any, str] | None = None
        self._size, self._stamp = self._retry("its size", self._look, lambda: "")

    # What the native readers ask for; see `RemoteOptions`.
    path = property(operator.attrgetter("_url"))
    size = property(operator.attrgetter("_size"))
    gap_bytes = property(operator.attrgetter("_options.gap_bytes"))
    run_bytes = property(operator.attrgetter("_options.run_bytes"))
    tail_bytes = property(operator.attrgetter("_options.tail_bytes"))
    parallel = property(operator.attrgetter("_options.parallel"))

    @property
    def version(self) -> int:
        """A number that is another once the file was written to.

        It is made of what the storage tells of that; 0 if it tells nothing.
        """
        if not self._stamp:
            return 0
        told = repr(sorted(self._stamp.items())).encode()
        return int.from_bytes(hashlib.sha1(told, usedforsecurity=False).digest()[:8])

    def read_range(self, offset: int, size: int) -> bytes:
        """Return the bytes [offset, offset + size)."""
        if size == 0:
            return b""
        what = f"bytes {offset} to {offset + size - 1}"
        return self._retry(what, lambda: self._fetch(offset, size), self.change)

    def change(self) -> str:
        """Say how the file changed since it was opened; empty if it did not.

        Sizes, times and tags are compared, as far as the storage has them. Empty,
        too, if the storage does not answer.
        """
        try:
            size, stamp = self._look()
        except FileNotFoundError as error:
            return "" if is_transient(error) else "the file is gone"
        except Exception:
            return ""
        if size != self._size:
            return (
                f"the file changed while it was open: it has {size} bytes now,"
                f" {self._size} when it was opened"
            )
        for name, before in self._stamp.items():
            now = stamp.get(name, before)
            if now != before:
                return (
                    "the file was replaced while it was open: its"
                    f" {name} is {now!r}, {before!r} when it was opened"
                )
        return ""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def __repr__(self) -> str:
        return f"RemoteFile({self._url!r})"

    def _filesystem(self) -> tuple[Any, str]:
        """Return this process's file system and what it calls the file."""
        if self._opened is None or self._opened[0] != os.getpid():
            # Threads that come here together make the same, or as good a one.
            made = file_system_of(self._url, self._storage_options)
            self._opened = (os.getpid(), *made)
        return self._opened[1:]

    def _limit(self, filesystem: Any) -> dict[str, Any]:
        """Return what bounds the time of a call, where the file system knows it."""
        is_async = getattr(filesystem, "async_impl", False)
        return {"timeout": self._options.timeout_s} if is_async else {}

    def _look(self) -> tuple[int, dict[str, Any]]:
        """Ask for the size, and for what tells the content from another."""
        filesystem, path = self._filesystem()
        # Listings are kept, and would not tell of a change.
        filesystem.invalidate_cache(path)
        info = filesystem.info(path, **self._limit(filesystem))
        if info.get("type") == "directory":
            raise IsADirectoryError("found a directory, expected a file")
        if info.get("size") is None:
            raise RemoteError("the storage does not say how many bytes it has")
        return int(info["size"]), {k: info[k] for k in _STAMPS if k in info}

    def _fetch(self, offset: int, size: int) -> bytes:
        filesystem, path = self._filesystem()
        # File systems that open files for this would read ahead in vain.
        extra = self._limit(filesystem) or {"cache_type": "none"}
        data = filesystem.cat_file(path, start=offset, end=offset + size, **extra)
        if len(data) > size:
            raise RemoteError(
                f"{len(data)} bytes came for {size}: the server does not serve ranges."
                " Copy the file to where they are served"
            )
        if len(data) < size:
            problem = f"{len(data)} bytes came for {size}"
            if self.change():
                raise RemoteError(problem)
            raise ConnectionError(problem)
        return bytes(data)

    def _retry(self, what: str, call: Callable[[], T], change: Callable[[], str]) -> T:
        options = self._options
        attempt = 1
        while True:
            try:
                return call()
            except Exception as error:
                transient = is_transient(error)
                if not transient or attempt >= options.attempts:
                    attempts = (
                        "the first attempt" if attempt == 1 else f"{attempt} attempts"
                    )
                    text = (
                        f"{self._url}: reading {what} failed at {attempts}:"
                        f" {_describe(error)}"
                    )
                    # A server that failed so often is not asked once more.
                    changed = "" if transient else change()
                    _raise(error, f"{text}; {changed}" if changed else text)
                delay = delay_s(
                    error, attempt, options.first_delay_s, options.most_delay_s
                )
            self._sleep(delay)
            attempt += 1


class RemoteStream(io.RawIOBase):
    """A file behind a URL as Python's files are, read from a place on."""

    def __init__(self, file: RemoteFile) -> None:
        self._remote = file
        self._at: int = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._remote.size)[whence]
        return self._at

    def readinto(self, room: Any) -> int:
        size: int = max(0, min(len(room), self._remote.size - self._at))
        room[:size] = self._remote.read_range(self._at, size)
        self._at += size
        return size


def glob_url(
    pattern: str, storage_options: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the URLs that match a pattern, in the order of their names."""
    if "::" in pattern:
        raise ValueError(
            f"{pattern} is a pattern in a chain of URLs, which cannot be looked up."
            " Pass a list of URLs."
        )
    filesystem, path = file_system_of(pattern, storage_options or {})
    # What comes before the path in the pattern comes before the paths found.
    bare = path.lstrip("/") if not pattern.endswith(path) else path
    start = pattern.removesuffix(bare)
    return sorted(
        start + (found if bare == path else found.lstrip("/"))
        for found in filesystem.glob(path)
    )


def _describe(error: Exception) -> str:
    if isinstance(error, (RemoteError, IsADirectoryError)):
        return str(error)
    # fsspec's HTTP client says of any failure that the file was not found.
    reason = error.__cause__ or error
    return f"{type(reason).__name__}: {reason}"


def _raise(error: Exception, text: str) -> NoReturn:
    """Raise `text` as what the error amounts to, whatever library it is of."""
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


# Pickles name the public place, which imports this module when it is asked.
RemoteOptions.__module__ = "gristmill.sources"
