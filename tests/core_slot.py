"""What the core keeps for a slot, laid out as in csrc/core/memory/arena.hpp."""

from __future__ import annotations

import ctypes

# An ArenaBook: base, bytes, holders.
_BOOK = (ctypes.c_uint64 * 3)(0, 0, 1 << 20)


class CoreSlot(ctypes.Structure):
    """The beginning of a Slot, with so many views and a book of its own."""

    _fields_ = [
        ("views", ctypes.c_uint32),
        ("returned", ctypes.c_uint32),
        ("book", ctypes.c_void_p),
    ]

    def __init__(self, views: int = 0) -> None:
        super().__init__(views, 0, ctypes.addressof(_BOOK))

    @property
    def address(self) -> int:
        """Where it lies, for a SlotView."""
        return ctypes.addressof(self)
