"""The beginning of a slot in the core, laid out as in csrc/core/memory/arena.hpp."""

from __future__ import annotations

import ctypes

_KEPT: list[CoreSlot] = []  # Like the core, never free a slot that has views.


class CoreSlot(ctypes.Structure):
    """A Slot with a number of views and its own mapping."""

    _fields_ = [
        ("views", ctypes.c_uint32),
        ("next_returned", ctypes.c_void_p),
        ("mapping", ctypes.c_void_p),
    ]

    def __init__(self, views: int = 0) -> None:
        # An ArenaMapping: base, bytes, the last returned slot, references.
        self._mapping = (ctypes.c_uint64 * 4)(0, 0, 0, 1 << 20)
        super().__init__(views, None, ctypes.addressof(self._mapping))
        _KEPT.append(self)

    @property
    def address(self) -> int:
        """Return the address, for a SlotView."""
        return ctypes.addressof(self)

    @property
    def returned(self) -> int:
        """Return 1 after the last view has ended, else 0."""
        return int(self._mapping[2] == self.address)
