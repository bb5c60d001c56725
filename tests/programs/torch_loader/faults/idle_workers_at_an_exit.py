import atexit
import multiprocessing

from programs.torch_loader.faults.squares import make, values

atexit.register(lambda: print([worker.exitcode for worker in workers]))
iterator = iter(make())
workers = multiprocessing.active_children()
print(values(next(iterator) for _ in range(2)))
