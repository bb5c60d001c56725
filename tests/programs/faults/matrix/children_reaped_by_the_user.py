import os
import signal

from faults.toolbox import Add, check_rest, engine_processes, loader, undisturbed

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
reference = undisturbed([Add()], records=2000)
iterator = iter(loader([Add()], records=2000))
next(iterator)
pids = engine_processes(2)
os.kill(pids["worker"][0], signal.SIGKILL)
os.kill(pids["launcher"][0], signal.SIGKILL)
check_rest(iterator, reference, 1)
