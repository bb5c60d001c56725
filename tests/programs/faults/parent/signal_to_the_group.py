import itertools
import os
import select
import signal
import sys

from faults.toolbox import (
    Add,
    check_rest,
    digest,
    engine_processes,
    loader,
    undisturbed,
    watched,
)

seen = []


def handler(number, frame):
    seen.append(number)


number = int(sys.argv[1])
signal.signal(number, handler)
reference = undisturbed([Add()], records=4000)
iterator = iter(loader([Add()], records=4000))
next(iterator)
before = watched(itertools.chain(*engine_processes(2).values()))
os.killpg(0, number)
second = next(iterator)
assert seen == [number]
assert digest([second]) == reference[1:2]
state = iterator.get_state()
check_rest(iterator, reference, 2)
fresh = iter(loader([Add()], records=4000))
fresh.set_state(state)
check_rest(fresh, reference, 2)
assert signal.getsignal(number) is handler
assert not select.select(before, [], [], 0)[0], "one has died"
