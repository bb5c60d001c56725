"""Crews that run a toy program, driven through _core.WorkerLog, and their processes."""

import json
import os
import select
import time

from gristmill import _core
from gristmill._workers import launcher

DEADLINE_S = 20

# What the toy programs below do is in the text of the blob; what they find, they
# append to the arena as a line of JSON.
TOY = """
import json, os, random, sys, threading, time

def say(arena, **found):
    os.write(arena, (json.dumps(found) + "\\n").encode())

def load(blob):
    program = os.pread(blob, 1000, 0).decode()
    if program == "raise":
        raise ImportError("no luck")
    if program == "exit":
        os._exit(7)
    if program == "threads":
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    if program == "blas":
        import numpy
        numpy.ones((300, 300)) @ numpy.ones((300, 300))
    if program == "jemalloc":
        import pyarrow
    if program == "stuck":
        time.sleep(1000)
    return program, os.getpid()

def serve(program, arena, knock, begun, worker, generation):
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
    import numpy
    say(arena, worker=worker, generation=generation, pid=os.getpid(),
        zygote=os.getppid(), loaded_here=loader == os.getpid(),
        imported_in=getattr(sys.modules.get("gristmill_heavy"), "pid", None),
        cwd=os.getcwd(), place=os.environ.get("PLACE"), path=sys.path[0],
        drawn=[random.random(), float(numpy.random.rand())],
        fds=[fd for fd in os.listdir("/proc/self/fd") if fd not in "012"])
    os.eventfd_write(knock, 1)
    while True:
        time.sleep(1000)
"""


class Crew:
    def __init__(self, program="run", *, entry="gristmill_toy", modules=()):
        launcher.configure("gristmill._engine.worker")
        self.blob = os.memfd_create("blob")
        os.write(self.blob, program.encode())
        self.arena = os.memfd_create("arena")
        # Several processes append; a position that they share loses lines.
        self.appending = os.open(f"/proc/self/fd/{self.arena}", os.O_RDWR | os.O_APPEND)
        self.seen = []
        setup = launcher.setup(entry)
        self.core = _core.WorkerLog(self.appending, self.blob, setup, modules)

    def close(self):
        self.core.dismiss()
        for fd in (self.blob, self.arena, self.appending):
            os.close(fd)

    def await_events(self, what, count):
        """Wait until `count` events of a kind came in all; return them."""
        deadline = time.monotonic() + DEADLINE_S
        while len(found := [e for e in self.seen if e[0] == what]) < count:
            left = deadline - time.monotonic()
            assert left > 0, f"{len(found)} of {count} {what}; seen: {self.seen}"
            select.select([self.core], [], [], left)
            self.seen += self.core.events()
        return found

    def findings(self, count):
        """Wait until `count` lines were written; return them."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            lines = os.pread(self.arena, 1 << 20, 0).decode().splitlines()
            if len(lines) >= count:
                return [json.loads(line) for line in lines]
            assert time.monotonic() < deadline, lines
            time.sleep(0.002)


def hire(crew, workers, generation=1):
    for worker in range(workers):
        crew.core.start_worker(worker, generation)


def watched(*pids):
    """Open pidfds: unlike numbers, they never come to mean another process."""
    return [os.pidfd_open(pid) for pid in pids]


def await_gone(pidfds, seconds=2.0):
    deadline = time.monotonic() + seconds
    for pidfd in pidfds:
        left = max(0, deadline - time.monotonic())
        assert select.select([pidfd], [], [], left)[0], "a process lives on"
        os.close(pidfd)


def children_of(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            found += map(int, file.read().split())
    return found


def launchers():
    """This process has other children, which are nobody's to kill."""
    found = []
    for pid in children_of(os.getpid()):
        with open(f"/proc/{pid}/cmdline") as file:
            if "gristmill._workers.launcher" in file.read():
                found.append(pid)
    return found


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
