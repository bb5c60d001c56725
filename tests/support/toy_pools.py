"""Pools of toy workers, driven through _core.WorkerLog, and their processes."""

import json
import os
import select
import time

from faults.scripts import PROGRAMS
from gristmill import _core
from gristmill._workers import parent

DEADLINE_S = 20

# The folder of gristmill_toy, the module that the workers run.
FOLDER = PROGRAMS / "launcher"


class ToyPool:
    """A pool of toy workers.

    Attributes:
        blob: A file with the name of the function that the workers run.
        arena: A file to which the workers append lines of JSON.
        seen: All events of workers so far.
        core: The core's pool.
    """

    def __init__(self, program="run", *, entry="gristmill_toy", modules=()):
        parent.configure("gristmill._engine.worker")
        self.blob = os.memfd_create("blob")
        os.write(self.blob, program.encode())
        self.arena = os.memfd_create("arena")
        # Several processes append; with a shared file position lines would get lost.
        self._append_fd = os.open(
            f"/proc/self/fd/{self.arena}", os.O_RDWR | os.O_APPEND
        )
        self.seen = []
        setup = parent.setup(entry)
        self.core = _core.WorkerLog(self._append_fd, self.blob, setup, modules)

    def close(self):
        self.core.dismiss()
        for fd in (self.blob, self.arena, self._append_fd):
            os.close(fd)

    def await_events(self, what, count):
        """Wait until `count` events of a kind have arrived; return them."""
        deadline = time.monotonic() + DEADLINE_S
        while len(found := [e for e in self.seen if e[0] == what]) < count:
            remaining_s = deadline - time.monotonic()
            assert remaining_s > 0, f"{len(found)} of {count} {what}; seen: {self.seen}"
            select.select([self.core], [], [], remaining_s)
            self.seen += self.core.events()
        return found

    def findings(self, count):
        """Wait until the workers have written `count` lines; return their values."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            lines = os.pread(self.arena, 1 << 20, 0).decode().splitlines()
            if len(lines) >= count:
                return [json.loads(line) for line in lines]
            assert time.monotonic() < deadline, lines
            time.sleep(0.002)


def start_workers(pool, workers, generation=1):
    for worker in range(workers):
        pool.core.start_worker(worker, generation)


def watched(*pids):
    """Open pidfds, which unlike process ids are never reused."""
    return [os.pidfd_open(pid) for pid in pids]


def await_gone(pidfds, seconds=2.0):
    """Wait until processes have ended, and close their pidfds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    for pidfd in pidfds:
        remaining_s = max(0, deadline - time.monotonic())
        assert select.select([pidfd], [], [], remaining_s)[0], "a process lives on"
        os.close(pidfd)


def children_of(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            found += map(int, file.read().split())
    return found


def launchers():
    """Return the launchers among this process's children, which tests may kill."""
    found = []
    for pid in children_of(os.getpid()):
        with open(f"/proc/{pid}/cmdline") as file:
            if "gristmill._workers.launcher" in file.read():
                found.append(pid)
    return found


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
