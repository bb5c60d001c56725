"""What the core keeps for a slot, laid out as in csrc/core/memory/arena.hpp."""

from __future__ import annotations

import ctypes

_KEPT: list[CoreSlot] = []  # As the core does, which frees no slot that has views.


class CoreSlot(ctypes.Structure):
    """The beginning of a Slot, with so many views and a book of its own."""

    _fields_ = [
        ("views", ctypes.c_uint32),
        ("next_returned", ctypes.c_void_p),
        ("book", ctypes.c_void_p),
    ]

    def __init__(self, views: int = 0) -> None:
        # An ArenaBook: base, bytes, the last slot that was returned, holders.
        self._book = (ctypes.c_uint64 * 4)(0, 0, 0, 1 << 20)
        super().__init__(views, None, ctypes.addressof(self._book))
        _KEPT.append(self)

    @property
    def address(self) -> int:
        """Where it lies, for a SlotView."""
        return ctypes.addressof(self)

    @property
    def returned(self) -> int:
        """1 once its last view has ended."""
        return int(self._book[2] == self.address)
