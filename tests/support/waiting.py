"""Waits for other threads and processes."""

import threading
import time

DEADLINE_S = 30.0


def wait_for(condition):
    """Return when the condition holds. Fail after 30 s."""
    deadline = time.monotonic() + DEADLINE_S
    never = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        never.wait(0.005)


def wait_until_ended(threads):
    """Return when none of these threads runs. Fail after 30 s.

    `Thread.join` raises for a thread that starts, and `threading.enumerate()` lists it.
    """
    threads = set(threads)
    wait_for(lambda: threads.isdisjoint(threading.enumerate()))
