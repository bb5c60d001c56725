"""A web server that simulates distance: it delays each answer by LATENCY_S.

It runs in its own process, and serves the files of a folder, whole or by ranges. It
does little per request, so that the server does not limit a client.
"""

import asyncio
import contextlib
import mmap
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import cast

LATENCY_S = 0.020
# Whole files are sent in pieces of this size, at the client's speed.
PIECE = 1 << 20


class Connection(asyncio.Protocol):
    """The connection of a client."""

    def __init__(self, files: dict[bytes, mmap.mmap]) -> None:
        self._files = files
        self._received = b""
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            self._loop.call_later(LATENCY_S, self._answer, head)

    def _answer(self, head: bytes) -> None:
        if self._transport.is_closing():
            return
        method, path, _ = head.split(b" ", 2)
        file = self._files.get(path[1:])
        if file is None:
            self._transport.write(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
            return
        first, last, status = 0, len(file) - 1, b"200 OK"
        marker = b"range: bytes="
        position = head.lower().find(marker)
        if position >= 0:
            value = head[position + len(marker) :].partition(b"\r\n")[0]
            begin, _, end = value.partition(b"-")
            first, last = int(begin), min(int(end or last), last)
            status = b"206 Partial Content"
        size = last + 1 - first
        answer = (
            b"HTTP/1.1 %s\r\nContent-Length: %d\r\nAccept-Ranges: bytes\r\n"
            b'ETag: "one"\r\n\r\n' % (status, size)
        )
        self._transport.write(answer)
        if method == b"HEAD":
            return
        if size <= 4 * PIECE:
            self._transport.write(memoryview(file)[first : last + 1])
        else:
            self._sending = self._loop.create_task(self._send(file, first, last + 1))

    async def _send(self, file: mmap.mmap, begin: int, end: int) -> None:
        for offset in range(begin, end, PIECE):
            await self._may_write.wait()
            if self._transport.is_closing():
                return
            self._transport.write(memoryview(file)[offset : min(offset + PIECE, end)])


def map_files(folder: pathlib.Path) -> dict[bytes, mmap.mmap]:
    """Returns the contents of the files of a folder that are not empty, by name."""
    files = {}
    for path in folder.iterdir():
        with open(path, "rb") as file:
            if os.path.getsize(path):
                size = os.path.getsize(path)
                files[path.name.encode()] = mmap.mmap(
                    file.fileno(), size, access=mmap.ACCESS_READ
                )
    return files


async def serve(folder: pathlib.Path) -> None:
    files = map_files(folder)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(files), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # End when the parent closes standard input.
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def running(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Serves a folder in the block, and yields the folder's URL."""
    command = [sys.executable, __file__, os.fspath(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        port = int(server.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.stdin.close()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(pathlib.Path(sys.argv[1])))
