"""Pins batches in a thread, for fast copies to an accelerator."""

from __future__ import annotations

import collections
import queue
import threading
from concurrent.futures import Future
from typing import TypeAlias

import torch

from gristmill._torch.private import ExceptionWrapper, pin_memory
from gristmill._torch.workers.changing import ChangingPool
from gristmill._torch.workers.pool import Answer

_Due: TypeAlias = "Future[Answer | None]"


class PinThread:
    """Receives a pool's answers, pins them and keeps them until they are due.

    Only one thread may call the methods.  No other code may receive the pool's answers.
    """

    def __init__(self, pool: ChangingPool, device: str) -> None:
        self._pool = pool
        self._device = device
        self._device_index = torch.accelerator.current_device_index()
        self._requests: queue.SimpleQueue[_Due | None] = queue.SimpleQueue()
        # The futures of answers that were not returned yet.
        self._due: collections.deque[_Due] = collections.deque()
        # True while a batch is being pinned, perhaps by the user's code.
        self._pinning = False
        self._stopping = False
        self._thread = threading.Thread(
            target=self._run, name="pt_data_pin", daemon=True
        )
        self._thread.start()

    def request(self) -> None:
        """Register a request for a batch that was sent to the pool."""
        due: _Due = Future()
        self._due.append(due)
        self._requests.put(due)

    def next(self, timeout_s: float | None) -> Answer | None:
        """Return the next answer, like `WorkerPool.next` but pinned.

        Raises:
            TimeoutError: It did not arrive in time.
            RuntimeError: From `WorkerPool.next`.  The answer is still due.
        """
        error = self._due[0].exception(timeout_s)
        due = self._due.popleft()
        if error is not None:
            self.request()
            raise error
        return due.result()

    def drop(self) -> None:
        """Wait for all answers that are due and drop them; the thread is then idle."""
        while self._due:
            self._due.popleft().exception()

    def stop(self) -> None:
        """Stop the thread after the pool was closed, without waiting for its batch."""
        self._stopping = True
        self._requests.put(None)
        # This may run in the thread itself, if it garbage-collects the iterator.
        if not self._pinning and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(1)
        torch.accelerator.set_device_index(self._device_index)
        while due := self._requests.get():
            try:
                due.set_result(self._taken())
            except BaseException as error:
                due.set_exception(error)

    def _taken(self) -> Answer | None:
        answer = self._pool.next()
        if answer is None:
            return None
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
