import contextlib
import os
import random
import signal
import sys
import threading
import time

from faults.toolbox import Add, children, digest, filtered, loader, undisturbed
from gristmill.errors import WorkerDied

seconds, seed = float(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
stop = threading.Event()
failures = []
OPERATIONS = [[Add()], filtered(Add())]
REFERENCES = [undisturbed(operations, records=400) for operations in OPERATIONS]


def use(chance):
    kind = chance.randrange(2)
    reference = REFERENCES[kind]
    options = {"records": 400, "workers": chance.randrange(1, 4), "max_restarts": 100}
    options |= {"stall_timeout": 1, "stall_action": "restart"}
    iterator = iter(loader(OPERATIONS[kind], **options))
    states = [iterator.get_state()]
    at = 0
    for _ in range(chance.randrange(60)):
        if chance.random() < 0.1:
            at = chance.randrange(len(states))
            iterator.set_state(states[at])
        if at == len(reference):
            assert next(iterator, None) is None
            break
        assert digest([next(iterator)]) == reference[at : at + 1], at
        at += 1
        if at == len(states):
            states.append(iterator.get_state())
        assert iterator.get_state() == states[at]
    if chance.random() < 0.5:
        iterator.close()
    elif chance.random() < 0.5:
        assert digest(iterator) == reference[at:]


def work(seed):
    chance = random.Random(seed)
    try:
        while not stop.is_set():
            try:
                use(chance)
            except WorkerDied as error:
                # Expected if three in a row are killed before they have started.
                if "cannot start" not in str(error):
                    raise
    except BaseException as error:
        failures.append(repr(error))
        stop.set()
        raise


def disturb():
    launchers = children(os.getpid())
    zygotes = [z for launcher in launchers for z in children(launcher)]
    workers = [w for zygote in zygotes for w in children(zygote)]
    kind = chance.choices([launchers, zygotes, workers, None], [1, 2, 20, 15])[0]
    victims = workers if kind is None else kind
    if not victims or not workers:
        return
    pid = chance.choice(victims)
    with contextlib.suppress(ProcessLookupError):
        if kind is not None:
            os.kill(pid, signal.SIGKILL)
            # Three kills without a started worker in between are an error.
            stop.wait(0 if kind is workers else 0.7)
            return
        os.kill(pid, signal.SIGSTOP)
        stop.wait(0.02)
        os.kill(pid, signal.SIGCONT)


threads = [threading.Thread(target=work, args=(seed + i,)) for i in range(4)]
for thread in threads:
    thread.start()
end = time.monotonic() + seconds
while time.monotonic() < end and not stop.wait(chance.random() * 0.03):
    disturb()
stop.set()
for thread in threads:
    thread.join(20)
    assert not thread.is_alive()
assert not failures, failures
assert len(os.listdir("/proc/self/fd")) < 16
