import atexit
import sys

from faults.toolbox import Add, digest, loader, undisturbed

registered = sys.argv[1]


def last():
    assert digest(loader([Add()])) == undisturbed([Add()])
    kept.append(iter(loader([Add()])))
    next(kept[-1])
    print("done")


kept = []
if registered == "before":
    atexit.register(last)
next(iter(loader([Add()])))
if registered == "after":
    atexit.register(last)
