import os
import signal
import sys

from programs.start_throttle.one_core import prepare
from support.toy_pools import ToyPool, start_workers

prepare(sys.argv[1])
pool = ToyPool("computes")
start_workers(pool, 3)
zygote = pool.findings(1)[0]["zygote"]
os.kill(zygote, signal.SIGKILL)
pool.await_events("started", 3)
pool.close()
