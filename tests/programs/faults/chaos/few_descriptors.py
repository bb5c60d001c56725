import os
import resource

import gristmill as g
from faults.toolbox import Add, digest, in_time, loader, undisturbed

reference = undisturbed([Add()])
worked = []
for most in (4, 8, 10, 12, 14, 16, 20, 30):
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        try:
            with in_time():
                os._exit(0 if digest(loader([Add()])) == reference else 1)
        except (OSError, g.errors.WorkerDied) as error:
            known = "Too many open files", "no file descriptors left"
            os._exit(2 if any(k in str(error) for k in known) else 3)
        finally:
            os._exit(4)
    worked.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert set(worked) == {0, 2}, worked
assert worked == sorted(worked, reverse=True), worked
