"""Kills processes at random moments while they write the same list of chunks."""

import os
import pathlib
import random
import signal
import sys
import time

from gristmill import _core

data, index, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(0)


def open_again_and_again():
    while True:
        pathlib.Path(index).unlink(missing_ok=True)
        _core.RecordFile(data, index_paths=[index])


def begin():
    pid = os.fork()
    if pid == 0:
        open_again_and_again()
    return pid


alive = [begin() for _ in range(2)]
for _ in range(kills):
    # A random moment; no event marks the writes.
    time.sleep(random.random() * 0.004)
    victim = alive.pop(0)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    alive.append(begin())
for pid in alive:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
plain = _core.RecordFile(data)
kept = _core.RecordFile(data, index_paths=[index])
chunks = range(0, plain.num_chunks, 97)
assert [*map(kept.chunk, chunks)] == [*map(plain.chunk, chunks)]
left = sorted(os.listdir(os.path.dirname(data)))
# A kill between the two steps that rename a list leaves its first name.
assert set(left) >= {os.path.basename(data), os.path.basename(index)}
assert len(left) < 2 + kills / 10, left
