"""Batches in memory from which an accelerator copies fast, made by a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils.pin_memory import pin_memory


class PinThread:
    """Takes values, pins them and keeps them until they are asked for.

    One thread may call `request` and `next`.  The values come in the order taken.

    Args:
        take: Waits for the next value and returns it; called in the thread, once for
            each request.  What it raises, `next` raises.
        pinned: Returns a value with its batch pinned by the function that is given.
        device: The type of accelerator, as torch names it.
    """

    def __init__(
        self,
        take: Callable[[], Any],
        pinned: Callable[[Any, Callable[[Any], Any]], Any],
        device: str | None,
    ) -> None:
        self._take = take
        self._pinned = pinned
        self._device = device
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._values: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopped = False
        index = torch.accelerator.current_device_index()
        self._thread = threading.Thread(
            target=self._run, args=(index,), name="pt_data_pin", daemon=True
        )
        self._thread.start()

    def request(self) -> None:
        """Let the thread take one value more."""
        self._requests.put(True)

    def next(self, timeout_s: float) -> Any:
        """The value due.

        Args:
            timeout_s: How long to wait for it; less than 0 waits for ever.

        Raises:
            queue.Empty: It did not come in time.
        """
        value = self._values.get(timeout=timeout_s if timeout_s >= 0 else None)
        if isinstance(value, BaseException):
            raise value
        return value

    def stop(self) -> None:
        """End the thread; what it waits for must fail or have come by then."""
        self._stopped = True
        self._requests.put(False)
        self._thread.join()

    def _run(self, device_index: int) -> None:
        torch.set_num_threads(1)
        torch.accelerator.set_device_index(device_index)
        where = f"in pin memory thread for device {device_index}"

        def pin(batch: Any) -> Any:
            if isinstance(batch, ExceptionWrapper):
                return batch
            try:
                return pin_memory(batch, self._device)
            except Exception:
                return ExceptionWrapper(where=where)

        while self._requests.get() and not self._stopped:
            try:
                value = self._pinned(self._take(), pin)
            except BaseException as error:
                value = error
            self._values.put(value)
            del value  # The batch is the consumer's alone.
