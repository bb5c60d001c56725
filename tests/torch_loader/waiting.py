"""Waits for what another process does."""

import threading
import time

DEADLINE_S = 30.0


def wait_for(condition):
    """Return once the condition holds, which takes 30 s at most."""
    deadline = time.monotonic() + DEADLINE_S
    never = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        never.wait(0.005)
