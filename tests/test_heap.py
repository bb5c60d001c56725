"""What processes of the engine do with their memory."""

import subprocess
import sys

import numpy as np
import pytest

from gristmill import _core

SCRIPT = """
import resource
from gristmill import _core

def faults_of_a_batch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    batch = [bytes([i]) * 100_000 for i in range(64)]
    del batch
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

_core.keep_freed_memory()
for _ in range(3):
    faults_of_a_batch()
print(sum(faults_of_a_batch() for _ in range(10)))
"""


def test_memory_of_a_batch_is_used_again():
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    pages = 64 * 100_000 // 4096
    assert int(done.stdout) < pages


def test_memory_in_a_huge_page_keeps_its_content():
    size = _core.HUGE_PAGE_BYTES
    room = np.zeros(3 * size, np.uint8)
    begin = -room.ctypes.data % size
    room[begin : begin + size] = np.arange(size) % 251
    _core.to_huge_page(room.ctypes.data + begin)
    np.testing.assert_array_equal(room[begin : begin + size], np.arange(size) % 251)
    assert not room[:begin].any() and not room[begin + size :].any()


def test_a_huge_page_begins_where_such_pages_do():
    with pytest.raises(ValueError, match="no multiple"):
        _core.to_huge_page(_core.HUGE_PAGE_BYTES + 1)
