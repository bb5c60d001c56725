"""Kills processes at random moments while they store one of two lists of footers."""

import os
import random
import signal
import sys
import time

import numpy as np
import pyarrow  # noqa: F401  Here, rather than in each writer.

from gristmill.sources._parquet_footers import Footer, load_footers, save_footers

place, kills = sys.argv[1], int(sys.argv[2])
stamps = [(number, number) for number in range(300)]
random.seed(0)


def begin():
    pid = os.fork()
    if pid == 0:
        rows = 0
        while True:
            rows = 3 - max(1, rows)
            save_footers(
                place, stamps, [Footer(np.array([rows]), {}, {})] * len(stamps)
            )
    return pid


kept = set()
for _ in range(kills):
    writer = begin()
    # A random moment; no event marks the writes.
    time.sleep(random.random() * 0.02)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    footers = load_footers(place, stamps)
    kept.add(frozenset(footer and int(footer.rows[0]) for footer in footers))
assert kept <= {frozenset({None}), frozenset({1}), frozenset({2})}, kept
assert {frozenset({1}), frozenset({2})} & kept
assert len(os.listdir(os.path.dirname(place))) < 1 + kills / 10
