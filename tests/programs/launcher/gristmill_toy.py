"""The module of toy pools; the text of the blob names the program.

Programs append their findings to the arena as lines of JSON.
"""

import json
import os
import random
import sys
import threading
import time


def say(arena, **found):
    os.write(arena, (json.dumps(found) + "\n").encode())


def load(blob):
    program = os.pread(blob, 1000, 0).decode()
    if program == "raise":
        raise ImportError("no luck")
    if program == "exit":
        os._exit(7)
    if program == "threads":
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    if program == "blas":
        import numpy as np

        np.matmul(np.ones((300, 300)), np.ones((300, 300)))
    if program == "jemalloc":
        import pyarrow  # noqa: F401
    if program == "stuck":
        time.sleep(1000)
    return program, os.getpid()


def serve(program, arena, notify_fd, begun, worker, generation):
    what, loader = program
    if what == "waits":
        time.sleep(1000)
    if what == "computes":
        say(arena, zygote=os.getppid())
        while True:
            pass
    os.close(begun)
    if what == "end":
        print("bye")
        return
    if what == "break":
        raise ValueError("broken toy")
    import numpy as np

    say(
        arena,
        worker=worker,
        generation=generation,
        pid=os.getpid(),
        zygote=os.getppid(),
        loaded_here=loader == os.getpid(),
        cwd=os.getcwd(),
        place=os.environ.get("PLACE"),
        path=sys.path[0],
        drawn=[random.random(), float(np.random.rand())],  # noqa: NPY002
        fds=[fd for fd in os.listdir("/proc/self/fd") if fd not in "012"],
    )
    os.eventfd_write(notify_fd, 1)
    while True:
        time.sleep(1000)
