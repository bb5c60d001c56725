import os
import threading

from faults.toolbox import Add, check_rest, digest, loader, undisturbed, wait_until

made = []


def make():
    iterator = iter(loader([Add()]))
    made.append((iterator, next(iterator)))


thread = threading.Thread(target=make)
thread.start()
thread.join()
for _ in wait_until("the end of the thread"):
    if str(thread.native_id) not in os.listdir("/proc/self/task"):
        break
((iterator, first),) = made
reference = undisturbed([Add()])
assert digest([first]) == reference[:1]
check_rest(iterator, reference, 1)
