"""Computes a chain in which steps leave their work to the batch."""

from __future__ import annotations

from typing import Any

from gristmill._base.types import Alloc
from gristmill._engine.block_steps import block_steps
from gristmill._engine.native_stream import NativeStream
from gristmill._engine.program import Program


class DeferringStream(NativeStream):
    """A chain of which a step can defer its work to the batch.  See `Stream`.

    If something fails, the steps make the output again without deferring, and so
    raise what is wrong with a record.
    """

    def __init__(
        self, program: Program, stream: int, at: int, look_ahead: bool
    ) -> None:
        super().__init__(program, stream, at, look_ahead)
        steps = program.levels[0].deferred
        self._eager = self._steps, self._together
        self._deferring = steps, block_steps(steps, self._draws, at)

    def next(self, alloc: Alloc | None = None) -> Any:
        if not self._careful:
            before = self._consumed
            self._steps, self._together = self._deferring
            try:
                return super().next(alloc)
            except Exception:
                if self._consumed == before:
                    raise  # It is the end.
                self._go_back(before)
            finally:
                self._steps, self._together = self._eager
        try:
            return super().next(alloc)
        finally:
            self._pending = None  # Its elements were made without deferring.

    def _go_back(self, consumed: int) -> None:
        """Forget what was made of the records from a position on."""
        self._consumed = consumed
        self._rest = self._pending = None
        self._reading.forget()
