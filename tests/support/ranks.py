"""Runs the ranks that share a pool in one process."""

import itertools
import os

import numpy as np

from gristmill import host
from gristmill._host.address import Address
from support.waiting import wait_for

_numbers = itertools.count()
_names = []


def new_name():
    """Return a name that no other pool has."""
    _names.append(f"test {os.getpid()} {next(_numbers)}")
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


def share_all(make, ranks, name=None, mode="deal", ahead=16):
    """Return one iterator for each rank, each over a loader of its own."""
    name = name or new_name()
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
