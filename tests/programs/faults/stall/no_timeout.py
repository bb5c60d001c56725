import threading

from faults.toolbox import At, digest, loader, undisturbed
from programs.faults.stall.stalls import Warnings

warned = Warnings("")
reference = undisturbed([At(-1, None)])


def wait_a_while():
    threading.Event().wait(1.5)


iterator = iter(loader([At(42, wait_a_while)], stall_timeout=None))
assert digest(iterator) == reference
assert warned.texts == []
assert loader([])._remote.stall_timeout == 60
