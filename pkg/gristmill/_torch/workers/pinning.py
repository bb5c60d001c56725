"""A thread that copies batches to pinned memory, from which accelerators copy fast."""

from __future__ import annotations

import collections
import queue
import threading
from concurrent.futures import Future
from typing import TypeAlias

import torch

from gristmill._torch.private import ExceptionWrapper, pin_memory
from gristmill._torch.workers.pool import Answer
from gristmill._torch.workers.resizable_pool import ResizablePool

_AnswerFuture: TypeAlias = "Future[Answer | None]"


class PinThread:
    """Pins a pool's answers in a thread, and keeps them until the caller takes them.

    Only one thread may call the methods.  Other code may take the pool's answers only
    while no answer is outstanding here.
    """

    def __init__(self, pool: ResizablePool, device: str) -> None:
        self._pool = pool
        self._device = device
        self._device_index = torch.accelerator.current_device_index()
        # From the caller to the thread: a future for each request, or None to end.
        self._requests: queue.SimpleQueue[_AnswerFuture | None] = queue.SimpleQueue()
        # Futures of the answers that the caller has not taken; the thread does not use
        # this deque.
        self._outstanding: collections.deque[_AnswerFuture] = collections.deque()
        # Set by the thread while it pins a batch, perhaps by the user's code.
        self._pinning = False
        # Set by `stop`, in the caller's thread.
        self._stopping = False
        self._thread = threading.Thread(
            target=self._run, name="pt_data_pin", daemon=True
        )
        self._thread.start()

    def request(self) -> None:
        """Note that a request for a batch was sent to the pool."""
        future: _AnswerFuture = Future()
        self._outstanding.append(future)
        self._requests.put(future)

    def next(self, timeout_s: float | None) -> Answer | None:
        """Wait for the next answer, and return it pinned; see `WorkerPool.next`.

        Raises:
            TimeoutError: The answer did not arrive in time.
            RuntimeError: The error of `WorkerPool.next`.  Another call waits for the
                same answer.
        """
        error = self._outstanding[0].exception(timeout_s)
        future = self._outstanding.popleft()
        if error is not None:
            # The answer is still due, so one more future than those left is needed.
            self.request()
            raise error
        return future.result()

    def drop(self) -> None:
        """Wait for all outstanding answers, and drop them; the thread is then idle."""
        while self._outstanding:
            self._outstanding.popleft().exception()

    def stop(self) -> None:
        """End the thread.  Call this after closing the pool.

        Does not wait while the thread pins a batch, which may take long.
        """
        self._stopping = True
        self._requests.put(None)
        # The garbage collector may delete the iterator in the pinning thread itself.
        if not self._pinning and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(1)
        torch.accelerator.set_device_index(self._device_index)
        while future := self._requests.get():
            try:
                future.set_result(self._take_pinned())
            except BaseException as error:
                future.set_exception(error)

    def _take_pinned(self) -> Answer | None:
        """Wait for the pool's next answer, and return it with its batch pinned."""
        answer = self._pool.next()
        if answer is None:
            return None
        # Before reading `_stopping`: `stop` sets that before it reads `_pinning`.
        self._pinning = True
        try:
            if self._stopping:
                return None
            value = pin_memory(answer.value, self._device)
        except Exception:
            where = f"in pin memory thread for device {self._device_index}"
            value = ExceptionWrapper(where=where)
        finally:
            self._pinning = False
        return answer._replace(value=value)
