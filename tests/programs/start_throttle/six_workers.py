import sys

from programs.start_throttle.one_core import prepare
from support.toy_pools import ToyPool, start_workers

prepare(sys.argv[1])
# The argument names the work of each worker before its first output.
pool = ToyPool(sys.argv[2])
start_workers(pool, 6)
started = pool.await_events("started", 6)
assert [worker for _, worker, *_ in started] == list(range(6))
pool.close()
