"""Waits for other threads and processes."""

import sys
import threading
import time
import traceback

DEADLINE_S = 30.0
# Looks before the deadline counts: a machine that stands still must not fail a test.
LOOKS = 3000


def wait_for(condition, found=lambda: ""):
    """Return when the condition holds. Fail after 30 s, with the text of `found`."""
    deadline = time.monotonic() + DEADLINE_S
    never = threading.Event()
    looks = 0
    while not condition():
        looks += 1
        late = looks > LOOKS and time.monotonic() > deadline
        assert not late, f"waited in vain\n{found()}"
        never.wait(0.005)


def started_since(before):
    """The threads that run and were not in the set `before`.

    Without those of C++ code: Python lists one from when it first asks for its thread
    object, which the garbage collector may do at any time, until the process ends.
    """
    return {
        thread
        for thread in set(threading.enumerate()) - set(before)
        if not isinstance(thread, threading._DummyThread)
    }


def wait_until_ended(threads):
    """Return when none of these threads runs. Fail after 30 s.

    `Thread.join` raises for a thread that starts, and `threading.enumerate()` lists it.
    """
    threads = set(threads)
    wait_for(
        lambda: threads.isdisjoint(threading.enumerate()), lambda: _stacks(threads)
    )


def _stacks(threads):
    """What those of the threads that run are doing."""
    frames = sys._current_frames()
    return "\n".join(
        f"{thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"
        for thread in threads
        if thread.ident in frames
    )
