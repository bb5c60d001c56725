import os
import threading

from faults.toolbox import Add, digest, loader, undisturbed

reference = undisturbed([Add()], records=800)
assert digest(loader([Add()], records=800)) == reference
stop = threading.Event()
failures = []


def work():
    try:
        while not stop.is_set():
            assert digest(loader([Add()], records=800)) == reference
    except BaseException as error:
        failures.append(repr(error))


threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(3):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            found = digest(loader([Add()], workers=1))
            status = 0 if found == undisturbed([Add()]) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
assert not failures, failures
