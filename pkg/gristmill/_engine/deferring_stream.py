"""Computes a loader's chain whose last steps defer their work to the batch."""

from __future__ import annotations

from typing import Any

from gristmill._base.deferred import deferred_else_eager
from gristmill._base.types import Alloc
from gristmill._engine.block_steps import block_steps
from gristmill._engine.native_stream import NativeStream
from gristmill._engine.program import Program


class DeferringStream(NativeStream):
    """Computes a chain whose steps can defer work to the batch.  See `Stream`.

    If that fails, it computes the same output again with the plain steps, which raise
    the error of the record at fault.
    """

    def __init__(
        self, program: Program, stream: int, record_address: int, look_ahead: bool
    ) -> None:
        super().__init__(program, stream, record_address, look_ahead)
        steps = program.batch_stages[0].deferred
        # Pairs of steps and their block runner; `_next_deferring` uses the second one,
        # by setting the fields of `NativeStream` for the call.
        self._plain_steps = self._steps, self._block_runner
        self._deferred_steps = steps, block_steps(steps, self._draws, record_address)

    def next(self, alloc: Alloc | None = None) -> Any:
        if self._lookahead_disabled:
            # A record of this output may have killed a worker: do not defer its work.
            return self._next_eager(alloc)
        start = self._consumed

        def eager() -> Any:
            self._go_back(start)
            return self._next_eager(alloc)

        return deferred_else_eager(lambda: self._next_deferring(alloc), eager)

    def _next_deferring(self, alloc: Alloc | None) -> Any:
        start = self._consumed
        self._steps, self._block_runner = self._deferred_steps
        try:
            return super().next(alloc)
        except StopIteration as end:
            if self._consumed == start:
                raise
            # Eager steps raise the errors of records in a last batch that is dropped.
            raise RuntimeError("records that are left out may fail") from end
        finally:
            self._steps, self._block_runner = self._plain_steps

    def _next_eager(self, alloc: Alloc | None) -> Any:
        try:
            return super().next(alloc)
        finally:
            self._undelivered = None  # Its elements were made without deferring.

    def _go_back(self, consumed: int) -> None:
        """Go back to a position, and drop the elements after it."""
        self._consumed = consumed
        self._failed_tail = self._undelivered = None
        self._reading.forget()
