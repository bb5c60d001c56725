import sys
import threading

from faults.toolbox import Add, loader


def work():
    while True:
        iterator = iter(loader([Add()], records=300))
        next(iterator)
        if sys.argv[1] == "iterating":
            list(iterator)


list(loader([Add()]))
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
threading.Event().wait(float(sys.argv[2]))
