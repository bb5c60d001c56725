import sys
import threading

from faults.toolbox import Add, engine_processes, loader

how = sys.argv[1]
iterator = iter(loader([Add()], records=100_000))
kept = next(iterator)
print(*engine_processes(2)["worker"], flush=True)
if how == "exit":
    sys.exit(3)
if how == "exception":
    raise ZeroDivisionError
if how == "in a thread":
    threading.Thread(target=list, args=(iterator,), daemon=True).start()
