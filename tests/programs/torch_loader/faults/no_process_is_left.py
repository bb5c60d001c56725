import contextlib
import gc
import sys

from faults.toolbox import await_gone, watched
from programs.torch_loader.faults.squares import make

context = sys.argv[1] or None


def some(leave):
    loader = make(multiprocessing_context=context)
    iterator = iter(loader)
    next(iterator)
    pids = [worker.pid for worker in iterator._workers]
    ending = watched(pids)
    if leave == "raise":
        with contextlib.suppress(ZeroDivisionError):
            for _batch in iterator:
                raise ZeroDivisionError
    if leave == "exhaust":
        for _batch in iterator:
            pass
    return ending


for leave in ("break", "del", "exhaust", "raise"):
    ending = some(leave)
    gc.collect()
    await_gone(ending)
