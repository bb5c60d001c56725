"""Ranges of files on web servers, using fsspec's client without a connection limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill.errors import RemoteError

__all__ = ["WebFile", "is_web", "with_connections"]

_SCHEMES = ("http://", "https://")


def with_connections(url: str, storage_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a URL's file system, with unlimited connections.

    By default fsspec's client of web servers has at most 100 connections.
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
    """Return whether this is fsspec's own file system of web servers."""
    kind = type(filesystem)
    return (
        kind.__name__ == "HTTPFileSystem"
        and kind.__module__ == "fsspec.implementations.http"
    )


class WebFile:
    """A file of a web server, read in two thirds of the time of fsspec's `_cat_file`.

    Args:
        filesystem: A file system for which `is_web` returns True.
        url: The URL of the file.
    """

    def __init__(self, filesystem: Any, url: str) -> None:
        import aiohttp

        self._filesystem = filesystem
        self._url = url
        self._encoded = filesystem.encode_url(url)
        # The caller limits the time.
        self._options = {"timeout": aiohttp.ClientTimeout(), **filesystem.kwargs}
        self._headers = self._options.pop("headers", {})

    async def get(self, begin: int, end: int, tag: str | None = None) -> bytes:
        """Return the bytes [begin, end), without a time limit.

        Raises:
            RemoteError: The response's ETag differs from `tag`.
        """
        headers = {**self._headers, "Range": f"bytes={begin}-{end - 1}"}
        # The buffer has room for the whole response.
        options = {"read_bufsize": end - begin, **self._options, "headers": headers}
        session = await self._filesystem.set_session()
        response = await session.get(self._encoded, **options)
        try:
            data = await _body(response, end - begin)
            self._filesystem._raise_not_found_for_status(response, self._url)
        except BaseException:
            response.close()
            raise
        etag = response.headers.get("ETag", tag)
        if tag is not None and etag.removeprefix("W/") != tag.removeprefix("W/"):
            raise RemoteError(f"expected a file with ETag {tag}, found {etag}")
        return data


async def _body(response: Any, size: int) -> bytes:
    """Return the body; wait only once if its announced length is `size`."""
    content = response.content
    is_uncoded = "Content-Encoding" not in response.headers
    body: bytes
    if is_uncoded and response.content_length == size and content.exception() is None:
        await content.wait_eof()
        body = content.read_nowait()
    else:
        body = await response.read()
    return body
