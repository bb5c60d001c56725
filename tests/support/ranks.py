"""Runs the ranks that share a pool, in one process or in several."""

import contextlib
import itertools
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np

from gristmill import host
from gristmill._host import server_process
from gristmill._host.address import Address
from gristmill._workers import main_module, parent
from gristmill._workers.processes import fork
from support.waiting import wait_for

_numbers = itertools.count()
_names = []


def new_name(folder=None):
    """Return a name that no other pool has: a path if it is in a folder."""
    name = f"test {os.getpid()} {next(_numbers)}"
    _names.append(name if folder is None else f"{folder}/{name}")
    return _names[-1]


def wait_for_ends():
    """Wait until no pool of these tests has a process."""
    while _names:
        address = Address(_names.pop())
        wait_for(lambda address=address: not _is_alive(address))


def _is_alive(address):
    connection = address.connect()
    if connection is None:
        return False
    connection.close()
    return True


def server_of(name):
    """Return the pids of a pool's server, its zygote and its workers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"run_server({name!r}" in path.read_text():
                found.append(int(path.parent.name))
    return found


def fork_server(name):
    """Start the server of a pool as a fork of this process, which imports nothing.

    Otherwise, the first rank starts a fresh process.
    """
    state = os.memfd_create("state")
    os.write(state, parent.setup(server_process.ENTRY, main_module.description()))
    listener = Address(name).listen()

    def run():
        if not os.fork():  # So that the server is not a child of this process.
            server_process.run_server(name, listener.fileno(), state, ())

    pid, pidfd = fork(run)
    os.waitpid(pid, 0)
    listener.close()
    os.close(pidfd)
    os.close(state)


def new_pool():
    """Start a pool by `fork_server`; return its name."""
    name = new_name()
    fork_server(name)
    return name


class RankProcess:
    """A rank in a fork of this process.

    Args:
        share: Returns its iterator.
    """

    def __init__(self, share):
        self._pipe, theirs = multiprocessing.Pipe()

        def run():
            self._pipe.close()
            iterator = share()
            with contextlib.suppress(EOFError):
                while True:
                    theirs.send(take_in_turn([iterator], theirs.recv())[0])
            iterator.close()

        self.pid, pidfd = fork(run)
        os.close(pidfd)
        theirs.close()

    def take(self, count=None):
        """Return its next outputs, at most `count`; see `take_in_turn`."""
        self._pipe.send(count)
        return self._pipe.recv()

    def end(self):
        self._pipe.close()
        os.kill(self.pid, signal.SIGCONT)
        assert os.waitpid(self.pid, 0)[1] == 0


def share_all(make, ranks, name=None, mode="deal", ahead=16):
    """Return one iterator for each rank, each over a loader of its own.

    Without a name, the server is a fork of this process.
    """
    name = name or new_pool()
    return [
        host.share(make(), name=name, rank=rank, ranks=ranks, mode=mode, ahead=ahead)
        for rank in range(ranks)
    ]


def take_in_turn(iterators, count=None):
    """Return the outputs of each iterator, at most `count`, as bytes and plain values.

    The iterators advance in turn, and end if they have no more outputs.
    """
    taken = [[] for _ in iterators]
    active = list(zip(iterators, taken, strict=True))
    for _ in range(count) if count is not None else itertools.count():
        if not active:
            break
        for pair in [*active]:
            iterator, outputs = pair
            try:
                outputs.append(plain(next(iterator)))
            except StopIteration:
                active.remove(pair)
    return taken


def plain(output):
    """Return an output that can be compared and is not a view of shared memory."""
    if isinstance(output, dict):
        return {name: plain(part) for name, part in output.items()}
    if isinstance(output, (list, tuple)):
        return [plain(part) for part in output]
    array = np.asarray(output)
    return str(array.dtype), array.shape, array.tobytes()


def close_all(iterators):
    for iterator in iterators:
        iterator.close()
