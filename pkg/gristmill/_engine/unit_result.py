"""The result of a unit that a worker has computed."""

from __future__ import annotations

from collections.abc import Callable

from gristmill import _core
from gristmill._engine.stream import Output, Position


class UnitResult:
    """Outputs of one unit, and the exception or the end of the stream after them.

    Attributes:
        outputs: The outputs that were not handed over yet.
        position: The position after them.
        failure: The packed exception after them; None if there is none.
        ended: Whether the stream ends after them.
        moved: Whether the position after the outputs differs from the end of the unit.
            If so, the next unit begins at that position.
        delivered_count: The number of earlier outputs that were handed over.
        is_part: Whether the worker still computes other outputs of the unit.
        leave: Called after all outputs are written, before the slot is handed over.
    """

    # Not a dataclass: each unit makes one, and few set more than two attributes.
    failure: bytes | None = None
    ended = False
    moved = False
    delivered_count = 0
    is_part = False
    leave: Callable[[], None] | None = None

    def __init__(self, outputs: list[Output], position: Position) -> None:
        self.outputs = outputs
        self.position = position

    @property
    def status(self) -> int:
        """The status of the unit for the parent; a failure goes before the end."""
        if self.failure is not None:
            return _core.STATUS_ERROR
        if self.ended:
            return _core.STATUS_END
        return _core.STATUS_MOVED if self.moved else _core.STATUS_OK
