import os
import resource

import gristmill as g
from faults.toolbox import Add, digest, in_time, loader, undisturbed

reference = undisturbed([Add()])
worked = []
for mib in (250, 400, 700, 3000):
    child = os.fork()
    if child == 0:
        limit = mib << 20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            with in_time():
                os._exit(0 if digest(loader([Add()])) == reference else 1)
        except (OSError, MemoryError, g.errors.WorkerDied):
            os._exit(2)
        finally:
            os._exit(4)
    worked.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert set(worked) <= {0, 2} and worked[-1] == 0, worked
