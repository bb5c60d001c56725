"""What processes of the engine do with their memory."""

from faults.scripts import run


def test_memory_of_a_batch_is_used_again():
    pages = 64 * 100_000 // 4096
    assert int(run("heap/memory_of_batches")) < pages
