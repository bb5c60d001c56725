"""gristmill._hot.views: views keep a slot until the last one is freed."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from gristmill._hot import views
from support.core_slot import CoreSlot


class Slot:
    """Memory with the core record of a slot."""

    def __init__(self) -> None:
        self.memory = np.zeros(4096, np.uint8)
        self.core = CoreSlot()

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data)

    @property
    def returned(self) -> bool:
        return bool(self.core.returned)

    def view(self) -> Any:
        self.core.views += 1
        return views.SlotView(self.core.address)


def test_slot_is_returned_with_the_last_view() -> None:
    slot = Slot()
    first, second = slot.view(), slot.view()
    assert (slot.core.views, slot.returned) == (2, False)
    del first
    gc.collect()
    assert (slot.core.views, slot.returned) == (1, False)
    del second
    gc.collect()
    assert (slot.core.views, slot.returned) == (0, True)


def test_view_is_not_tracked_by_gc() -> None:
    slot = Slot()
    assert not gc.is_tracked(slot.view())
