"""Batches in memory from which an accelerator copies fast, made by a thread."""

from __future__ import annotations

import dataclasses
import queue
import threading

import torch

from gristmill._torch.private import ExceptionWrapper, pin_memory
from gristmill._torch.workers.pool import Answer, WorkerPool


class PinThread:
    """Takes a pool's answers, pins them and keeps them until they are due.

    One thread may call the methods.

    Args:
        pool: Nobody else may ask it for answers.
        device: The type of accelerator, as torch names it.
    """

    def __init__(self, pool: WorkerPool, device: str) -> None:
        self._pool = pool
        self._device = device
        self._device_index = torch.accelerator.current_device_index()
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | BaseException | None] = (
            queue.SimpleQueue()
        )
        # Answers that the thread was told of and that nobody has taken.
        self._expected = 0
        self._thread = threading.Thread(
            target=self._run, name="pt_data_pin", daemon=True
        )
        self._thread.start()

    def request(self) -> None:
        """Say that the pool was asked for a batch."""
        self._expected += 1
        self._requests.put(True)

    def next(self, timeout_s: float) -> Answer | None:
        """The answer that is due, as `WorkerPool.next` gives it but pinned.

        Raises:
            TimeoutError: It did not come in time.
            RuntimeError: What `WorkerPool.next` raised.  The answer is still due.
        """
        try:
            answer = self._answers.get(timeout=timeout_s if timeout_s >= 0 else None)
        except queue.Empty:
            raise TimeoutError from None
        self._expected -= 1
        if isinstance(answer, BaseException):
            self.request()
            raise answer
        return answer

    def drop(self) -> None:
        """Take all answers that are expected and drop them; then the thread rests."""
        while self._expected:
            self._answers.get()
            self._expected -= 1

    def stop(self) -> None:
        """End the thread, after the pool was closed."""
        self._requests.put(False)
        # The iterator may be garbage that this very thread collects.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(1)
        torch.accelerator.set_device_index(self._device_index)
        while self._requests.get():
            self._answers.put(self._taken())

    def _taken(self) -> Answer | BaseException | None:
        try:
            answer = self._pool.next()
        except BaseException as error:
            return error
        if answer is None:
            return None
        try:
            value = pin_memory(answer.value, self._device)
        except Exception:
            where = f"in pin memory thread for device {self._device_index}"
            value = ExceptionWrapper(where=where)
        return dataclasses.replace(answer, value=value)
