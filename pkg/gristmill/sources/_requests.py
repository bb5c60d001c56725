"""Requests for ranges of remote files: many at once, without a thread for each.

`Fetch` starts reads of asynchronous file systems on the event loop that fsspec runs in
its own thread, and passes the answers to the waiting thread. All requests of a process
to one host share a `RequestLimit`, which limits how many are in flight. The others wait
for their turn, first come, first served.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import os
import queue
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from gristmill._base.retries import is_transient
from gristmill.sources import _share as share
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._request_limit import RequestLimit

__all__ = [
    "FailedRequest",
    "Fetch",
    "FetchedFile",
    "HostRequests",
    "WrongSizeError",
    "requests_of",
]

# Wake the reader only after this many bytes: switching threads takes time.
WAKE_BYTES = 4 << 20


class HostRequests:
    """The requests of this process to one host. Any thread may call.

    When the turn of a request comes, it gets a ticket, the value of
    `RequestLimit.begin`, and returns it when it ends.

    The lock guards the limit and the queue. Requests are started without the lock.
    """

    def __init__(self, max_requests: int) -> None:
        self._request_limit = RequestLimit(max_requests)
        self._waiting: collections.deque[_Thread | _Request] = collections.deque()
        self._lock = threading.Lock()

    def submit(self, waiter: _Thread | _Request) -> None:
        """Start a request when its turn comes: now, or when another one ends."""
        with self._lock:
            self._waiting.append(waiter)
        self._start_waiting()

    def end(self, ticket: int, nbytes: int, *, failed: bool = False) -> None:
        """Count a request that has ended, and start waiting ones.

        Args:
            ticket: The ticket of the request.
            nbytes: The size of the answer.
            failed: Whether a transient error ended it.
        """
        self._count(ticket, nbytes, failed)
        self._start_waiting()

    def end_and_take_next(
        self, loop: asyncio.AbstractEventLoop, ticket: int, nbytes: int, failed: bool
    ) -> tuple[_Request, int] | None:
        """Like `end`, but return the first request of `loop` for the caller to start.

        Returns None if no request of that loop has its turn.
        """
        self._count(ticket, nbytes, failed)
        next_of_loop = None
        while turn := self._begin_next():
            waiter, ticket = turn
            if (
                next_of_loop is None
                and isinstance(waiter, _Request)
                and waiter.loop is loop
            ):
                next_of_loop = waiter, ticket
            else:
                waiter.start(ticket)
        return next_of_loop

    def wait_for_turn(self) -> int:
        """Wait in this thread for a turn, and return the ticket to pass to `end`."""
        thread = _Thread()
        self.submit(thread)
        try:
            return thread.wait()
        except BaseException:  # For example KeyboardInterrupt.
            with self._lock:
                thread.is_wanted = False
                has_started = thread not in self._waiting
            # It has left the queue, so its ticket has come or will come: return it.
            if has_started:
                self.end(thread.wait(), 0)
            raise

    def _count(self, ticket: int, nbytes: int, failed: bool) -> None:
        with self._lock:
            self._request_limit.end(
                ticket, nbytes, failed=failed, has_waiting=bool(self._waiting)
            )

    def _start_waiting(self) -> None:
        while turn := self._begin_next():
            waiter, ticket = turn
            waiter.start(ticket)

    def _begin_next(self) -> tuple[_Thread | _Request, int] | None:
        """Return the first waiter and its ticket; None if nothing may start now."""
        with self._lock:
            while (
                self._waiting
                and self._request_limit.in_flight < self._request_limit.limit
            ):
                waiter = self._waiting.popleft()
                if waiter.is_wanted:
                    return waiter, self._request_limit.begin()
        return None


class _Thread:
    """A thread that waits for its turn.

    The lock of `HostRequests` guards `is_wanted`.  Any thread may call `start`.
    """

    def __init__(self) -> None:
        self.is_wanted = True
        self._ticket = 0
        self._started = threading.Event()

    def start(self, ticket: int) -> None:
        self._ticket = ticket
        self._started.set()

    def wait(self) -> int:
        """Wait for the turn; an interrupted wait may be repeated."""
        self._started.wait()
        return self._ticket


class FetchedFile(Protocol):
    """The part of a remote file that requests use."""

    @property
    def options(self) -> RemoteOptions: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def requests(self) -> HostRequests: ...

    async def get(self, offset: int, size: int) -> bytes:
        """Return a range of bytes, using one request."""

    def retry_failed(self, offset: int, size: int, failed: FailedRequest) -> bytes:
        """Return a range after the attempts of a fetch failed, or raise the error."""

    def delay_s(self, error: Exception, attempt: int) -> float:
        """Return the time before the next attempt, in seconds."""


class FailedRequest(Exception):
    """Error of a range whose attempts all failed."""

    def __init__(self, error: Exception, attempts: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.attempts = attempts


class WrongSizeError(Exception):
    """Error of an answer with more or fewer bytes than requested."""

    def __init__(self, found_bytes: int, size: int) -> None:
        super().__init__(f"expected {size} bytes, found {found_bytes}")
        self.found_bytes = found_bytes


class Fetch:
    """Ranges that are being read: [(file, offset, size), ...].

    Only one thread, the reader, may call `take` and `close`. The threads of the files'
    event loops call `arrive`; there are several if `storage_options` name loops. Any
    thread may read `closed`, which only the reader sets, without the lock.
    """

    def __init__(self, ranges: Sequence[tuple[FetchedFile, int, int]]) -> None:
        self._ranges = ranges
        self._answers: queue.SimpleQueue[list[tuple[int, Any]]] = queue.SimpleQueue()
        # Guards the next three fields.
        self._lock = threading.Lock()
        # Answers that were not yet passed to the reader.
        self._batch: list[tuple[int, Any]] = []
        self._batch_bytes = 0
        self._unanswered_count = len(ranges)
        self.closed = False
        # Looked up once per file, on this thread, to keep the event loop free.
        files = {file for file, _, _ in ranges}
        connections = {file: (file.loop, file.requests) for file in files}
        requests = [
            _Request(self, number, file, offset, size, *connections[file])
            for number, (file, offset, size) in enumerate(ranges)
        ]
        for loop in {loop for loop, _ in connections.values()}:
            loop.call_soon_threadsafe(_submit, [r for r in requests if r.loop is loop])

    def take(self) -> list[tuple[int, Any]]:
        """Wait for answers, and return pairs (number of the range, bytes or error).

        Returns each range once, in any order. Do not call it after the last one.
        """
        answers = []
        for number, answer in self._answers.get():
            if isinstance(answer, FailedRequest):
                file, offset, size = self._ranges[number]
                try:
                    answer = file.retry_failed(offset, size, answer)
                except Exception as error:
                    answer = error
            answers.append((number, answer))
        return answers

    def close(self) -> None:
        """Start no further requests. Do not call `take` afterwards."""
        self.closed = True

    def arrive(self, number: int, answer: Any) -> None:
        """Accept bytes or a `FailedRequest`; called on the thread of a loop."""
        with self._lock:
            self._batch.append((number, answer))
            self._unanswered_count -= 1
            if isinstance(answer, bytes):
                self._batch_bytes += len(answer)
            if self._batch_bytes >= WAKE_BYTES or not self._unanswered_count:
                self._answers.put(self._batch)
                self._batch, self._batch_bytes = [], 0


def _submit(requests: list[_Request]) -> None:
    for request in requests:
        request.submit()


@dataclasses.dataclass(eq=False)
class _Request:
    """A request for a range.

    Any thread may read `is_wanted` and call `start`. All else is used on the thread of
    `loop`.

    Attributes:
        attempt: The number of the current or next attempt, from 1.
        task: The task that makes the request, once it has started.
    """

    fetch: Fetch
    number: int
    file: FetchedFile
    offset: int
    size: int
    loop: asyncio.AbstractEventLoop
    host: HostRequests
    attempt: int = 1
    task: asyncio.Task[None] = dataclasses.field(init=False, repr=False)

    @property
    def is_wanted(self) -> bool:
        return not self.fetch.closed

    def submit(self) -> None:
        self.host.submit(self)

    def start(self, ticket: int) -> None:
        if asyncio._get_running_loop() is self.loop:
            self._begin(ticket)
        else:
            self.loop.call_soon_threadsafe(self._begin, ticket)

    def _begin(self, ticket: int) -> None:
        # The loop keeps only a weak reference to a task.
        self.task = self.loop.create_task(_make_requests(self, ticket))

    async def make(self, task: asyncio.Task[None]) -> tuple[bytes, Exception | None]:
        """Make one attempt in `task`, and return the bytes and the error, if any."""
        self.task = task
        timeout_s = self.file.options.timeout_s
        # asyncio.timeout() is five times slower.
        timer = self.loop.call_later(timeout_s, task.cancel)
        try:
            data = await self.file.get(self.offset, self.size)
            if len(data) == self.size:
                return data, None
            return data, WrongSizeError(len(data), self.size)
        except asyncio.CancelledError:
            if timer.when() <= self.loop.time():
                return b"", TimeoutError(f"no answer within {timeout_s} s")
            return b"", ConnectionError("the request was cancelled")
        except Exception as error:
            return b"", error
        finally:
            timer.cancel()

    def finish(self, data: bytes, error: Exception | None) -> None:
        """Deliver the answer, or schedule another attempt."""
        if error is None:
            self.fetch.arrive(self.number, data)
        elif is_transient(error) and self.attempt < self.file.options.attempts:
            self._try_again(error)
        else:
            self.fetch.arrive(self.number, FailedRequest(error, self.attempt))

    def _try_again(self, error: Exception) -> None:
        delay = self.file.delay_s(error, self.attempt)
        self.attempt += 1
        self.loop.call_later(delay, self.submit)


async def _make_requests(request: _Request, ticket: int) -> None:
    """Make a request, and then others whose turns come, in the same task.

    With one task per request, the objects of many answers would be allocated and freed
    in bursts. The garbage collector mistakes that for growth, and would use a fifth of
    the processor time.
    """
    loop, task = request.loop, request.task
    current: tuple[_Request, int] | None = request, ticket
    while current is not None:
        request, ticket = current
        data, error = await request.make(task)
        failed = error is not None and is_transient(error)
        request.finish(data, error)
        current = request.host.end_and_take_next(loop, ticket, len(data), failed)


# By process id, host and limit, so that a forked child does not use its parent's.
_hosts: dict[tuple[int, str, int], HostRequests] = {}


def requests_of(host: str, max_requests: int) -> HostRequests:
    """Return the requests of this process to a host.

    `max_requests` limits the requests of all worker processes together; each one gets
    an equal part.
    """
    key = os.getpid(), host, max(1, max_requests // share.processes())
    existing = _hosts.get(key)
    # setdefault() returns the same object to threads that race here.
    return existing or _hosts.setdefault(key, HostRequests(key[2]))
