"""Processes of the engine reuse their memory."""

from faults.scripts import run


def test_batch_memory_is_reused():
    pages = 64 * 100_000 // 4096
    assert int(run("heap/memory_of_batches")) < pages
