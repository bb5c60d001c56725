"""Starts a program, kills it at a random time and checks that nothing is left."""

import os
import random
import sys
import threading

from faults.scripts import start
from faults.toolbox import (
    Add,
    await_gone,
    descendants,
    digest,
    loader,
    undisturbed,
    watched,
)

number, rounds = map(int, sys.argv[1:3])
seed, private = sys.argv[3], sys.argv[4] == "True"
chance = random.Random(seed)


def await_line(script, wanted):
    found = script.stdout.readline()
    assert found == wanted, (found, script.poll(), script.stderr.read())


for _ in range(rounds):
    with start("faults/parent/iterates") as script:
        await_line(script, "begun\n")
        if chance.random() < 0.6:
            await_line(script, "in the middle\n")
        threading.Event().wait(chance.random() * 0.3)
        ending = watched([script.pid, *descendants(script.pid)])
        script.send_signal(number)
        await_gone(ending)
        assert script.wait(2) != 0
    # /dev/shm may contain files of other programs unless it is private.
    assert not private or os.listdir("/dev/shm") == []
assert digest(loader([Add()])) == undisturbed([Add()])
