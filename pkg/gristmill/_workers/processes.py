"""What launcher, zygotes and workers share: forks, and the messages between them.

A worker that was started by the launcher is no `multiprocessing.Process` of the user's
program, yet it is one to `current_process()` and `parent_process()`: daemonic, and with
the user's process as its parent.

``csrc/core/processes/spawn.hpp`` has the table of the messages.
"""

import contextlib
import functools
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Set
from multiprocessing import process
from typing import NamedTuple

from gristmill import _core

(
    OPEN_GROUP,
    FORGET,
    ZYGOTE,
    GONE,
    START_WORKER,
    STARTED,
    EXITED,
    THREADS,
    FAILED,
    READY,
    INHERIT,
) = range(1, 12)
_MESSAGE = struct.Struct("<IIiIi")
_MOST_FDS = 8
_BOTH = (signal.SIGINT, signal.SIGTERM)


class Message(NamedTuple):
    """One message; what does not apply is 0."""

    kind: int
    group: int = 0
    worker: int = 0
    generation: int = 0
    value: int = 0


def fork(child: Callable[[], None]) -> tuple[int, int]:
    """Run child in a new process that ends with this one; return pid and pidfd."""
    parent = os.getpid()
    _flush()  # Else both would write what is buffered.
    pid = _quiet_fork()
    if pid == 0:
        _run_and_exit(parent, child)
    try:
        return pid, os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)  # Not reaped yet, so the number is its own.
        os.waitpid(pid, 0)
        raise


def _quiet_fork() -> int:
    """Fork without the warnings of Python and JAX about threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def _run_and_exit(parent: int, child: Callable[[], None]) -> None:
    status = 1
    try:
        _core.die_with_parent(parent)
        child()
        status = 0
    except SystemExit as end:
        code = end.code
        if not isinstance(code, int | None):
            print(code, file=sys.stderr)
            code = 1
        status = (code or 0) & 0xFF  # As Python exits.
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(status)  # The exit handlers are those of the process above.


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # It may be closed or missing.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def send(peer: socket.socket, message: Message, *fds: int) -> None:
    # A peer that is gone is found out when the socket is read.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        socket.send_fds(peer, [_MESSAGE.pack(*message)], fds)


def receive(peer: socket.socket) -> tuple[Message, list[int]] | None:
    """Return the next message and its descriptors, or None when there is no peer."""
    try:
        data, fds, _, _ = socket.recv_fds(
            peer, _MESSAGE.size, _MOST_FDS, socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionResetError:
        return None
    return (Message(*_MESSAGE.unpack(data)), fds) if data else None


class Children:
    """The processes that this one has forked, of which it tells the supervisor.

    Args:
        supervisor: Is told who has started, and how each has ended.
        ended: The kind of the message that says so.

    Attributes:
        poll: What `wait` waits for.
    """

    def __init__(self, supervisor: socket.socket, ended: int) -> None:
        self._supervisor = supervisor
        self._ended = ended
        self._running: dict[int, Message] = {}  # By pidfd: the value is the pid.
        self.poll = select.poll()
        self.poll.register(supervisor, select.POLLIN)

    @property
    def count(self) -> int:
        """How many run."""
        return len(self._running)

    def fork(self, started: Message, child: Callable[[], None]) -> int:
        """Run child in a new process and say that it has started; return its pid.

        Raises:
            OSError: The system has no room for it.
        """

        def alone() -> None:
            for other in self._running:
                os.close(other)
            child()

        pid, pidfd = fork(alone)
        self._running[pidfd] = message = started._replace(value=pid)
        self.poll.register(pidfd, select.POLLIN)
        send(self._supervisor, message, pidfd)
        return pid

    def wait(self, timeout_ms: int | None = None) -> list[int]:
        """Wait for something to do, and reap; return what else is ready."""
        ready = [fd for fd, _ in self.poll.poll(timeout_ms)]
        return [fd for fd in ready if not self._reaps(fd)]

    def kill(self, group: int) -> None:
        """End the processes of a group, if there are some."""
        for pidfd, started in self._running.items():
            if started.group == group:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def _reaps(self, pidfd: int) -> bool:
        started = self._running.pop(pidfd, None)
        if started is None:
            return False
        self.poll.unregister(pidfd)
        try:
            status = os.waitpid(started.value, 0)[1]
        except ChildProcessError:  # User code took it before.
            status = 0
        send(self._supervisor, started._replace(kind=self._ended, value=status))
        os.close(pidfd)
        return True


def send_failure(peer: socket.socket, group: int, why: str) -> None:
    """Send why a group can have no workers."""
    text = os.memfd_create("gristmill")
    with open(text, "wb", closefd=False) as file:
        file.write(why.encode(errors="replace"))
    send(peer, Message(FAILED, group), text)
    os.close(text)


def lasting_threads(harmless: Set[str] = frozenset()) -> int:
    """Count the threads, besides this one, that a fork would lose.

    Those with a number in `harmless` do not count.

    Those of OpenBLAS do not count: it ends them before a fork and starts new ones
    on both sides. So a fork that does nothing shows which are left. Nor does that of
    jemalloc, which pyarrow brings: a fork takes its locks, and the child frees memory
    without it.
    """
    if other_threads() - harmless:
        pid = _quiet_fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    # A thread that was joined may be listed for a moment longer.
    deadline = time.monotonic() + 0.05
    while (lasting := other_threads() - harmless) and time.monotonic() < deadline:
        time.sleep(0.001)
    return len(lasting)


def other_threads() -> set[str]:
    """Return the numbers of this process's threads but this one and jemalloc's."""
    found = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm") as name:
                if name.read() != "jemalloc_bg_thd\n":
                    found.add(thread)
        except OSError:
            continue  # It has ended.
    return found - {str(threading.get_native_id())}


def look_like_worker(name: str, parent_pid: int) -> None:
    """Let `current_process()` be a daemonic process of this name.

    The user's process is its `parent_process()`.
    """
    known = process.parent_process()
    if known is None:
        # Readable when it has ended, like the sentinels of multiprocessing.
        sentinel = os.pidfd_open(parent_pid)
        known = process._ParentProcess("MainProcess", parent_pid, sentinel)  # type: ignore[attr-defined]
    current = process.BaseProcess(name=name, daemon=True)
    current._parent_pid = parent_pid  # type: ignore[attr-defined]
    process._current_process = current  # type: ignore[attr-defined]
    process._parent_process = known  # type: ignore[attr-defined]


def leave_signals_to_parent() -> None:
    """Ignore Ctrl-C and termination, which are sent to whole process groups.

    By a handler that does nothing, since programs that a worker runs would inherit
    SIG_IGN.
    """
    for number in _BOTH:
        signal.signal(number, _ignore)


def restore_signals_in_forks() -> None:
    """Let processes that this one forks from here on end by these signals again.

    Signals that come before that wait for it.
    """
    os.register_at_fork(
        before=functools.partial(signal.pthread_sigmask, signal.SIG_BLOCK, _BOTH),
        after_in_parent=_unblock,
        after_in_child=_restore_signals,
    )


def _ignore(number: int, frame: object) -> None:
    """Do nothing."""


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _BOTH)


def _restore_signals() -> None:
    if signal.getsignal(signal.SIGINT) is _ignore:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is _ignore:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unblock()
