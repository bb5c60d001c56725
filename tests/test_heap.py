"""What processes of the engine do with their memory."""

import subprocess
import sys

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
