"""Ranges of files on web servers, by fsspec's client: as many at once as wanted."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from gristmill.errors import RemoteError

__all__ = ["get_of_web", "is_web", "with_connections"]

_SCHEMES = ("http://", "https://")


def with_connections(url: str, storage_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a URL's file system, for any number of requests at a time.

    fsspec's client of web servers would have 100 connections, and let others wait.
    """
    options = dict(storage_options)
    if url.startswith(_SCHEMES):
        options.setdefault("get_client", _client)
    return options


async def _client(**kwargs: Any) -> Any:
    import aiohttp

    if "connector" not in kwargs:
        kwargs["connector"] = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(**kwargs)


def is_web(filesystem: Any) -> bool:
    """Whether this is fsspec's own file system of web servers."""
    kind = type(filesystem)
    return (
        kind.__name__ == "HTTPFileSystem"
        and kind.__module__ == "fsspec.implementations.http"
    )


async def get_of_web(
    filesystem: Any, url: str, begin: int, end: int, tag: str | None = None
) -> bytes:
    """Return the bytes [begin, end), as ``_cat_file`` does in a third less time.

    However long that takes: who asks has to cancel it.

    Raises:
        RemoteError: They are of another version of the file than that of `tag`.
    """
    size = end - begin
    options = filesystem.kwargs
    headers = {**options.get("headers", {}), "Range": f"bytes={begin}-{end - 1}"}
    # All of it has room where it arrives.
    options = {"timeout": _unlimited(), "read_bufsize": size, **options}
    session = await filesystem.set_session()
    answer = await session.get(
        filesystem.encode_url(url), **{**options, "headers": headers}
    )
    try:
        data = await _body(answer, size)
        filesystem._raise_not_found_for_status(answer, url)
    except BaseException:
        answer.close()
        raise
    found = answer.headers.get("ETag", tag)
    if tag is not None and found.removeprefix("W/") != tag.removeprefix("W/"):
        raise RemoteError(f"they are of the version {found}, not of {tag}")
    return data


async def _body(answer: Any, size: int) -> bytes:
    """Wait for what comes; where that is `size` bytes, only once for all of them."""
    content = answer.content
    if answer.content_length == size and content.exception() is None:
        await content.wait_eof()
        whole: bytes = content.read_nowait()
        return whole
    parts: bytes = await answer.read()
    return parts


@functools.lru_cache
def _unlimited() -> Any:
    import aiohttp

    return aiohttp.ClientTimeout()
