import os
import sys
import time

from gristmill import _core
from gristmill._workers import parent

parent.configure("gristmill._engine.worker")
blob, arena = os.memfd_create("blob"), os.memfd_create("arena")
arena = os.open(f"/proc/self/fd/{arena}", os.O_RDWR | os.O_APPEND)
pool = _core.WorkerLog(arena, blob, parent.setup("gristmill_toy"))
for worker in range(4):
    pool.start_worker(worker, 1)
while os.pread(arena, 1 << 16, 0).count(b"\n") < 4:
    time.sleep(0.002)
print(os.pread(arena, 1 << 16, 0).decode(), flush=True)
print("end", flush=True)
if sys.argv[1] == "stay":
    time.sleep(1000)
sys.stdin.read()
