"""Keeps a slot from being reused while arrays view it.

The twin of ``gristmill._hot.views``.  Its counting is not atomic: it is for one
thread, to test against.
"""

from __future__ import annotations

import ctypes
from typing import Any


class CoreSlot(ctypes.Structure):
    """The beginning of the core's ``ArenaSlot`` (csrc/core/memory/arena.hpp)."""

    _fields_ = [
        ("views", ctypes.c_uint32),
        ("returned", ctypes.c_uint32),
        ("book", ctypes.c_void_p),
    ]


class SlotView:
    """The base of all arrays that view one output in a slot.

    Args:
        slot: Address of the core's ``ArenaSlot``.  The caller held one view of it,
            which is this object's from now on.
    """

    def __init__(self, slot: int) -> None:
        self._slot = CoreSlot.from_address(slot)

    def __del__(self) -> None:
        self._slot.views -= 1
        if self._slot.views == 0:
            self._slot.returned = 1

    def slice(self, address: int, nbytes: int) -> Any:
        """Return an object whose memoryview is nbytes writable bytes at an address."""
        part: Any = (ctypes.c_ubyte * nbytes).from_address(address)
        part.owner = self
        return part
