"""Gets the Python stacks of a worker that keeps the consumer waiting.

In each worker, faulthandler writes the stacks of all threads to the worker's own
anonymous file when the worker gets `STACK_SIGNAL`.  The parent finds that file by its
name among the worker's descriptors, sends the signal and reads the file.  So no
descriptor has to be passed, and a worker stuck in C code responds, too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import glob
import os
import select
import signal
from collections.abc import Iterator

STACK_SIGNAL = signal.SIGRTMIN + 9
# A busy machine may not run the worker for a while.
ANSWER_MS = 2000
STEP_MS = 10


def dump_at_signal(arena_inode: int, worker: int) -> None:
    """Write all threads' stacks to a file at each `STACK_SIGNAL`, in a worker."""
    fd = os.memfd_create(_name(arena_inode, worker), os.MFD_CLOEXEC)
    faulthandler.register(STACK_SIGNAL, fd, all_threads=True)


def stacks_of(arena_inode: int, worker: int) -> str:
    """Return a worker's Python stacks, or a text that explains why they are missing."""
    prefix = f"/memfd:{_name(arena_inode, worker)} "
    for pid in _descendants(os.getpid()):
        for link in glob.iglob(f"/proc/{pid}/fd/*"):
            with contextlib.suppress(OSError):
                if os.readlink(link).startswith(prefix):
                    return _request_stacks(pid, link)
    return "(the worker's process was not found)"


def _name(arena_inode: int, worker: int) -> str:
    return f"gristmill-stack-{arena_inode}-{worker}"


def _request_stacks(pid: int, path: str) -> str:
    """Send the signal; return the text that the worker adds to the file at `path`."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return "(the worker has ended)"
    try:
        old_size = os.stat(path).st_size
        signal.pidfd_send_signal(pidfd, STACK_SIGNAL)
        exit_poll = select.poll()
        exit_poll.register(pidfd, select.POLLIN)
        for _ in range(ANSWER_MS // STEP_MS):
            if exit_poll.poll(STEP_MS):
                break
            with open(path, "rb") as file:
                text = file.read()[old_size:]
            # At least one frame was written, in whole lines.
            if text.endswith(b"\n") and b"File " in text:
                return text.decode(errors="replace").strip()
    except OSError as error:
        return f"(its stack could not be read: {error})"
    finally:
        os.close(pidfd)
    return "(the worker does not respond: it is stopped, or it has ended)"


def _descendants(pid: int) -> Iterator[int]:
    """Yield all descendants: a worker is the child of a zygote of the launcher."""
    for children in glob.iglob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            with open(children) as file:
                numbers = file.read().split()
            for child in numbers:
                yield int(child)
                yield from _descendants(int(child))
