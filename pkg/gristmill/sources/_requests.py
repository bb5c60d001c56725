"""Requests for ranges of far files: many under way at once, without a thread for each.

`fetch` begins reads of file systems that are asynchronous, on the event loop that
fsspec runs in a thread of its own, and gives what comes to whoever waits for it.  All
requests of a process to one host share a `Flow`, which says how many are under way; the
others wait for their turn, in the order in which they were asked for.
"""

from __future__ import annotations

import asyncio
import collections
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gristmill._base.retries import is_transient
from gristmill.sources import _share as share
from gristmill.sources._flow import Flow

if TYPE_CHECKING:
    from gristmill.sources._remote import RemoteFile

__all__ = ["Fetch", "HostRequests", "Unanswered", "requests_of"]

# Whoever waits is woken for so many answers, or bytes: changing threads takes time.
WAKE_ANSWERS = 8
WAKE_BYTES = 1 << 20

# Called when it is the turn of a request, with what `HostRequests.end` wants back;
# False says that it is not wanted any more.
Start = Callable[[int], bool]


class HostRequests:
    """The requests of this process to one host.  Any threads may call."""

    def __init__(self, most: int) -> None:
        self._flow = Flow(most)
        self._waiting: collections.deque[Start] = collections.deque()
        self._lock = threading.Lock()

    @property
    def wanted(self) -> int:
        """How many requests should be under way or waiting: twice the limit."""
        return 2 * self._flow.limit

    @property
    def count(self) -> int:
        """How many requests are under way or waiting."""
        return self._flow.under_way + len(self._waiting)

    def submit(self, start: Start) -> None:
        """Call `start` when it is its turn: at once, or by who ends another."""
        with self._lock:
            self._waiting.append(start)
        self._start_some()

    def end(self, begun: int, nbytes: int, *, failed: bool = False) -> None:
        """Say that a request was answered; see `Flow.end`."""
        with self._lock:
            waiting = bool(self._waiting)
            self._flow.end(begun, nbytes, failed=failed, waiting=waiting)
        self._start_some()

    def _start_some(self) -> None:
        while True:
            with self._lock:
                flow = self._flow
                if not self._waiting or flow.under_way >= flow.limit:
                    return
                start = self._waiting.popleft()
                begun = flow.begin()
            if not start(begun):
                with self._lock:
                    flow.under_way -= 1

    def turn(self) -> int:
        """Wait in this thread for a turn; returns what `end` wants back."""
        answer: queue.SimpleQueue[int] = queue.SimpleQueue()

        def start(begun: int) -> bool:
            answer.put(begun)
            return True

        self.submit(start)
        return answer.get()


class Unanswered(Exception):
    """A range that did not come, and after how many attempts; its cause says why."""

    def __init__(self, error: Exception, attempts: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.attempts = attempts


class Fetch:
    """Ranges that are being read: [(file, offset, size), ...].

    `take` and `close` are for one thread.
    """

    def __init__(self, ranges: Sequence[tuple[RemoteFile, int, int]]) -> None:
        self._ranges = ranges
        self._came: queue.SimpleQueue[list[tuple[int, Any]]] = queue.SimpleQueue()
        # Those that nobody was woken for.
        self._batch: list[tuple[int, Any]] = []
        self._batch_bytes = 0
        self._left = len(ranges)
        self.closed = False
        by_loop: dict[Any, list[_Request]] = {}
        for number, (file, offset, size) in enumerate(ranges):
            loop = file.loop
            request = _Request(self, number, file, offset, size, loop)
            by_loop.setdefault(loop, []).append(request)
        for loop, requests in by_loop.items():
            loop.call_soon_threadsafe(_submit, requests)

    def take(self) -> list[tuple[int, Any]]:
        """Wait for some; returns the number of each and its bytes, or an exception."""
        answers = []
        for number, answer in self._came.get():
            if isinstance(answer, Unanswered):
                file, offset, size = self._ranges[number]
                try:
                    answer = file.read_after(offset, size, answer)
                except Exception as error:
                    answer = error
            answers.append((number, answer))
        return answers

    def close(self) -> None:
        """Begin no more of them."""
        self.closed = True

    def arrive(self, number: int, answer: Any) -> None:
        """Take an answer, or an `Unanswered`; the loop's thread calls."""
        self._batch.append((number, answer))
        self._left -= 1
        if isinstance(answer, bytes):
            self._batch_bytes += len(answer)
        full = len(self._batch) >= WAKE_ANSWERS or self._batch_bytes >= WAKE_BYTES
        if full or not self._left:
            self._came.put(self._batch)
            self._batch, self._batch_bytes = [], 0


def _submit(requests: list[_Request]) -> None:
    for request in requests:
        request.submit()


class _Request:
    """A range that is wanted; lives in the loop's thread."""

    def __init__(
        self,
        fetch: Fetch,
        number: int,
        file: RemoteFile,
        offset: int,
        size: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._fetch = fetch
        self._number = number
        self._file = file
        self._offset = offset
        self._size = size
        self._loop = loop
        self._host = file.requests
        self._attempt = 1
        self._task: asyncio.Task[None] | None = None

    def submit(self) -> None:
        self._host.submit(self._start)

    def _start(self, begun: int) -> bool:
        if self._fetch.closed:
            return False
        # Kept: the loop itself has only a weak reference.
        self._task = self._loop.create_task(self._run(begun))
        return True

    async def _run(self, begun: int) -> None:
        error: Exception | None = None
        data = b""
        try:
            data = await self._file.get(self._offset, self._size)
        except Exception as raised:
            error = raised
        again = error is not None and is_transient(error)
        self._host.end(begun, len(data), failed=again)
        if error is None:
            self._fetch.arrive(self._number, data)
        elif again and self._attempt < self._file.options.attempts:
            self._try_again(error)
        else:
            self._fetch.arrive(self._number, Unanswered(error, self._attempt))

    def _try_again(self, error: Exception) -> None:
        delay = self._file.delay_s(error, self._attempt)
        self._attempt += 1
        self._loop.call_later(delay, self.submit)


_hosts: dict[tuple[int, str, int], HostRequests] = {}


def requests_of(host: str, most: int) -> HostRequests:
    """The requests of this process to a host, of all processes at most so many."""
    key = os.getpid(), host, max(1, most // share.processes())
    found = _hosts.get(key)
    # Threads that come here together get the same.
    return found or _hosts.setdefault(key, HostRequests(key[2]))
