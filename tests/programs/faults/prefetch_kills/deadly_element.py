import os
import signal
import sys

import gristmill as g
from gristmill._dataset.nodes import to_iter


def options(workers):
    return g.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2)


def read_fast(worker, workers):
    # Double the block size at every step, even if elements are slow here.
    to_iter.BLOCK_NS = 1 << 60


kind, marks = sys.argv[1:]


def fault(x):
    # Each process that gets here leaves a mark and dies.
    if x == 17:
        with open(marks, "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGSEGV)
    return x


chain = g.MapDataset.range(40).map(fault).to_iter_dataset()
if kind == "C":
    chain = chain.filter(lambda x: True)
iterator = iter(chain.batch(2).mp_prefetch(options(2), worker_init_fn=read_fast))
got = []
try:
    for batch in iterator:
        got.append(batch.tolist())
except g.WorkerDied as error:
    assert "was terminated unexpectedly" in str(error), error
    assert "killed by SIGSEGV (exit code -11)" in str(error), error
else:
    raise AssertionError("nothing was raised")
assert got == [
    [0, 2],
    [1, 3],
    [4, 6],
    [5, 7],
    [8, 10],
    [9, 11],
    [12, 14],
    [13, 15],
    [16, 18],
], got
# A worker that owns its stream computes ahead: it first died one output earlier.
with open(marks) as file:
    assert file.read() == {"A": "xx", "C": "xxx"}[kind]
state = iterator.get_state()
iterator.close()
# The same output fails without workers, under a debugger if needed.
os.kill = lambda *_: None
alone = iter(chain.batch(2).mp_prefetch(options(0), streams=2))
alone.set_state(state)
assert next(alone).tolist() == [17, 19]
