"""Tests of views of a pool's memory."""

import mmap
import os
import platform
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from gristmill._host.slot_views import PoolMemory, release_after

NBYTES = 1 << 20
KERNEL = [int(part) for part in platform.release().split("-")[0].split(".")[:2]]


@pytest.fixture
def arena() -> Iterator[int]:
    fd = os.memfd_create("arena")
    os.ftruncate(fd, NBYTES)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("missing", ["nothing", "the system call", "/proc"])
def test_next_view_of_private_slot_has_pool_bytes(
    arena: int, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = PoolMemory(arena, NBYTES, private=True)
    if missing == "the system call":
        monkeypatch.setattr("gristmill._host.slot_views._PAGEMAP_SCAN", 0)
    elif missing == "/proc":
        memory._pages_fd = -1
    released: list[int] = []
    for written in (5, 70_000, None):
        view = memory.view(64, 100_000)
        release_after(view, lambda: released.append(1))
        if written is not None:
            view[written] = 1
        del view
        os.pwrite(arena, bytes([7]) * 100_000, 64)
        view = memory.view(64, 100_000)
        np.testing.assert_array_equal(view, np.full(100_000, 7, np.uint8))
        del view
    assert len(released) == 3


@pytest.mark.skipif(KERNEL < [6, 7], reason="Linux cannot find changed pages")
def test_pages_without_writes_stay_mapped(
    arena: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = PoolMemory(arena, NBYTES, private=True)
    dropped: list[int] = []
    mapping = SimpleNamespace(madvise=lambda advice, *place: dropped.append(advice))
    monkeypatch.setattr(memory, "_mapping", mapping)
    for writes in (False, True):
        view = memory.view(0, 100_000)
        release_after(view, lambda: None)
        assert view.sum() == 0
        if writes:
            view[50_000] = 1
        del view
        assert dropped == [mmap.MADV_DONTNEED] * writes


def test_private_writes_do_not_reach_the_pool(arena: int) -> None:
    memory = PoolMemory(arena, NBYTES, private=True)
    view = memory.view(0, 100)
    view[:] = 9
    assert os.pread(arena, 100, 0) == bytes(100)
