"""Slots of an arena that another process maps, by their offsets."""

import mmap

import pytest

from gristmill import _core

PAGE = mmap.PAGESIZE


def test_slots_do_not_overlap_and_are_reused():
    arena = _core.Arena(1 << 20)
    first, second = arena.take(3 * PAGE), arena.take(1)
    assert first == (0, 3 * PAGE)
    assert second == (3 * PAGE, PAGE)
    assert arena.charged == 4 * PAGE
    arena.charge_populated(0, PAGE + 1)
    assert arena.charged == 3 * PAGE
    arena.give_back(0)
    assert arena.take(2 * PAGE) == first


def test_limit_leaves_no_room_except_beyond_it():
    arena = _core.Arena(2 * PAGE)
    assert arena.take(2 * PAGE) is not None
    assert arena.take(1) is None
    assert arena.take(1, True) == (2 * PAGE, PAGE)
    assert arena.take(arena.bytes + 1, True) is None


def test_memory_is_that_of_the_descriptor():
    arena = _core.Arena(0)
    offset, capacity = arena.take(PAGE)
    with mmap.mmap(arena.fd, arena.bytes) as mapping:
        mapping[offset : offset + capacity] = b"x" * capacity


@pytest.mark.parametrize("call", ["give_back", "charge_populated"])
def test_offset_of_no_slot_is_refused(call):
    arena = _core.Arena(0)
    arguments = (64,) if call == "give_back" else (64, 1)
    with pytest.raises(ValueError, match="no slot was taken at offset 64"):
        getattr(arena, call)(*arguments)
