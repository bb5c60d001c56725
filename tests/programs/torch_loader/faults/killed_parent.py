import sys

from faults.scripts import start
from faults.toolbox import await_gone, watched

with start("torch_loader/faults/waits_for_its_parent", *sys.argv[1:]) as child:
    ending = watched(map(int, child.stdout.readline().split()))
    assert len(ending) == 2
    child.kill()
    await_gone(ending)
