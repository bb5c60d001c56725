"""gristmill._hot.views: who keeps a slot, and when it is given back."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from gristmill._hot import views
from support.core_slot import CoreSlot


class Slot:
    """Memory with what the core keeps for a slot."""

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


def test_takes_over_a_view_and_gives_back_at_zero() -> None:
    slot = Slot()
    first, second = slot.view(), slot.view()
    assert (slot.core.views, slot.returned) == (2, False)
    del first
    gc.collect()
    assert (slot.core.views, slot.returned) == (1, False)
    del second
    gc.collect()
    assert (slot.core.views, slot.returned) == (0, True)


def test_the_collector_need_not_know_it() -> None:
    slot = Slot()
    assert not gc.is_tracked(slot.view())
