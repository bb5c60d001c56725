"""gristmill._hot.views: who keeps a slot, and when it is given back."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from core_slot import CoreSlot
from gristmill._hot import views


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


def test_a_slice_of_an_array_keeps_the_slot() -> None:
    slot = Slot()
    array = np.frombuffer(slot.view().slice(slot.address, 128), np.float32)
    part = array.reshape(4, 8)[1:, ::2].T
    del array
    gc.collect()
    assert not slot.returned
    part[...] = 1
    assert slot.memory.any()
    del part
    gc.collect()
    assert slot.returned


def test_a_memoryview_keeps_the_slot() -> None:
    slot = Slot()
    bytes_ = memoryview(slot.view().slice(slot.address + 8, 16)).cast("B")
    bytes_[0] = 7
    assert slot.memory[8] == 7
    assert bytes_.nbytes == 16
    gc.collect()
    assert not slot.returned
    array = np.frombuffer(bytes_, np.int32)
    del bytes_
    gc.collect()
    assert not slot.returned
    del array
    gc.collect()
    assert slot.returned


def test_the_collector_need_not_know_it() -> None:
    slot = Slot()
    assert not gc.is_tracked(slot.view())
    assert not gc.is_tracked(slot.view().slice(slot.address, 1))
