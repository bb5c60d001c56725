"""`pin_slot` finds a slot by any address in it and keeps its pages."""

import ctypes
import gc
import mmap

import numpy as np
import pytest

import gristmill as g
from gristmill import _core

pytestmark = pytest.mark.multiprocess


def batches():
    """Return an iterator of batches of 128 KiB in slots; batch i contains only i."""
    rows = np.repeat(np.arange(320, dtype=np.int64) // 32, 512).reshape(320, 512)
    return iter(
        g.DataLoader(
            data_source=rows,
            sampler=g.SequentialSampler(320),
            operations=[g.Batch(32)],
            worker_count=1,
        )
    )


def test_pin_slot_covers_whole_pages_of_slot():
    iterator = batches()
    batch = next(iterator)
    first, last = batch.ctypes.data, batch.ctypes.data + batch.nbytes - 1
    slot = _core.pin_slot(last)
    assert slot.address <= first < last < slot.address + slot.nbytes
    assert slot.address % mmap.PAGESIZE == slot.nbytes % mmap.PAGESIZE == 0


def test_pin_slot_pinned_slot_returns_none():
    iterator = batches()
    batch = next(iterator)
    slot = _core.pin_slot(batch.ctypes.data)
    assert _core.pin_slot(batch.ctypes.data) is None
    del slot
    assert _core.pin_slot(batch.ctypes.data) is not None


def test_pin_slot_other_memory_returns_none():
    iterator = batches()
    next(iterator)
    assert _core.pin_slot(np.zeros(1 << 20).ctypes.data) is None
    assert _core.pin_slot(0) is None
    assert _core.pin_slot(2**64 - 1) is None


def test_pinned_slot_is_reused_for_later_batches():
    iterator = batches()
    slots = {}
    for number, batch in enumerate(iterator):
        slot = _core.pin_slot(batch.ctypes.data)
        if slot is not None:
            slots[slot.address] = slot
        assert (batch == number).all()
        del batch
    assert number == 9
    assert len(slots) < 10


def test_pinned_slot_keeps_memory_after_iterator_and_views():
    iterator = batches()
    batch = next(iterator)
    next(iterator)
    batch[...] = 77
    address = batch.ctypes.data
    slot = _core.pin_slot(address)
    offset, nbytes = address - slot.address, batch.nbytes
    iterator.close()
    del batch, iterator
    gc.collect()
    memory = np.ctypeslib.as_array(
        (ctypes.c_int64 * (nbytes // 8)).from_address(slot.address + offset)
    )
    assert (memory == 77).all()
