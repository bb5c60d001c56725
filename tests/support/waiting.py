"""Waits for other threads and processes."""

import sys
import threading
import time
import traceback

DEADLINE_S = 30.0
# Checks before the deadline counts, so that a stalled machine does not fail a test.
MIN_CHECKS = 3000


def wait_for(condition, details=lambda: ""):
    """Wait until the condition is true; fail after 30 s with the text of `details`."""
    deadline = time.monotonic() + DEADLINE_S
    never = threading.Event()
    checks = 0
    while not condition():
        checks += 1
        is_late = checks > MIN_CHECKS and time.monotonic() > deadline
        assert not is_late, f"waited {DEADLINE_S} s without success\n{details()}"
        never.wait(0.005)


def started_since(before):
    """Return the running threads that are not in the set `before`.

    C++ threads are excluded, because Python lists such a thread as soon as it gets its
    thread object. The garbage collector may do that at any time.
    """
    return {
        thread
        for thread in set(threading.enumerate()) - set(before)
        if not isinstance(thread, threading._DummyThread)
    }


def wait_until_ended(threads):
    """Wait until none of these threads runs; fail after 30 s.

    Unlike `Thread.join`, this accepts a thread that is just starting.
    """
    threads = set(threads)
    wait_for(
        lambda: threads.isdisjoint(threading.enumerate()), lambda: _stacks(threads)
    )


def _stacks(threads):
    """Return the stacks of those threads that run."""
    frames = sys._current_frames()
    return "\n".join(
        f"{thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"
        for thread in threads
        if thread.ident in frames
    )
