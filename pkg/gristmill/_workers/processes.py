"""Forks, and messages between processes, for the launcher, the zygotes and the workers.

A worker that was started by the launcher is not a `multiprocessing.Process` of the
user's program.  Still, inside the worker `current_process()` returns a daemonic process
and `parent_process()` returns the user's process.

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
    LOAD_IN_WORKERS,
    FAILED,
    READY,
    INHERIT,
) = range(1, 12)
_MESSAGE = struct.Struct("<IIiIi")  # The fields of `Message`, in order.
_MAX_FDS = 8  # In one message.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Message(NamedTuple):
    """One message; fields that do not apply are 0.

    `group` is the supervisor's number of a pipeline's workers.  `generation` counts the
    processes that had the number `worker`.  What `value` means depends on the kind.
    """

    kind: int
    group: int = 0
    worker: int = 0
    generation: int = 0
    value: int = 0


def fork(child: Callable[[], None]) -> tuple[int, int]:
    """Run child in a new process that ends with this one; return pid and pidfd."""
    parent = os.getpid()
    _flush()  # Otherwise both processes would write the buffered output.
    pid = _quiet_fork()
    if pid == 0:
        _run_and_exit(parent, child)
    try:
        return pid, os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)  # Not reaped yet, so the pid was not reused.
        os.waitpid(pid, 0)
        raise


def _quiet_fork() -> int:
    """Fork without the warnings of Python and JAX about threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def _run_and_exit(parent: int, child: Callable[[], None]) -> None:
    """Run child in this fork of `parent`, and exit with its status."""
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
        status = (code or 0) & 0xFF  # Like Python's own exit.
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(status)  # The exit handlers belong to the parent process.


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The stream may be closed or missing.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def send(peer: socket.socket, message: Message, *fds: int) -> None:
    """Send a message with copies of descriptors; do nothing if the peer is gone."""
    # Reading the socket detects that the peer is gone.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        socket.send_fds(peer, [_MESSAGE.pack(*message)], fds)


def receive(peer: socket.socket) -> tuple[Message, list[int]] | None:
    """Return the next message and its descriptors, or None when there is no peer."""
    try:
        data, fds, _, _ = socket.recv_fds(
            peer, _MESSAGE.size, _MAX_FDS, socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionResetError:
        return None
    return (Message(*_MESSAGE.unpack(data)), fds) if data else None


class Children:
    """The child processes of this process; reports on them to the supervisor.

    Args:
        supervisor: The socket that gets the messages about starts and ends.
        end_kind: The kind of the message about an end: GONE or EXITED.

    Attributes:
        poll: The poll object that `wait` uses.
    """

    def __init__(self, supervisor: socket.socket, end_kind: int) -> None:
        self._supervisor = supervisor
        self._end_kind = end_kind
        self._running: dict[int, Message] = {}  # By pidfd; `value` is the pid.
        self.poll = select.poll()
        self.poll.register(supervisor, select.POLLIN)

    @property
    def count(self) -> int:
        """The number of running processes."""
        return len(self._running)

    def fork(self, started: Message, child: Callable[[], None]) -> int:
        """Run child in a new process, report its start, and return its pid.

        `started` is the message for the report, except for its `value`, the pid.

        Raises:
            OSError: The system cannot create a process or a descriptor.
        """

        def close_others_and_run() -> None:
            for other in self._running:
                os.close(other)
            child()

        pid, pidfd = fork(close_others_and_run)
        self._running[pidfd] = message = started._replace(value=pid)
        self.poll.register(pidfd, select.POLLIN)
        send(self._supervisor, message, pidfd)
        return pid

    def wait(self, timeout_ms: int | None = None) -> list[int]:
        """Wait for events, and reap ended children; return the other ready fds.

        These are the supervisor's socket, and what the caller has added to `poll`.
        """
        ready = [fd for fd, _ in self.poll.poll(timeout_ms)]
        return [fd for fd in ready if not self._reap(fd)]

    def kill(self, group: int) -> None:
        """Kill the processes of a group."""
        for pidfd, started in self._running.items():
            if started.group == group:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def _reap(self, pidfd: int) -> bool:
        """Reap and report a child that has ended; return False for other fds."""
        started = self._running.pop(pidfd, None)
        if started is None:
            return False
        self.poll.unregister(pidfd)
        try:
            status = os.waitpid(started.value, 0)[1]
        except ChildProcessError:  # User code has reaped it.
            status = 0
        send(self._supervisor, started._replace(kind=self._end_kind, value=status))
        os.close(pidfd)
        return True


def send_failure(peer: socket.socket, group: int, reason: str) -> None:
    """Send the reason why a group cannot have workers."""
    text = os.memfd_create("gristmill")
    with open(text, "wb", closefd=False) as file:
        file.write(reason.encode(errors="replace"))
    send(peer, Message(FAILED, group), text)
    os.close(text)


def lasting_threads(harmless: Set[str] = frozenset()) -> int:
    """Count the threads, other than this one, that a fork would lose.

    Threads with an id in `harmless` do not count.

    OpenBLAS's threads do not count either: it ends them before a fork and starts new
    ones in both processes. A fork that does nothing reveals which threads remain. The
    thread of jemalloc, which is part of pyarrow, does not count: a fork takes its
    locks, and the child frees memory without it.
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
    """Return the ids of this process's threads except this one and jemalloc's."""
    threads = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm") as name:
                if name.read() != "jemalloc_bg_thd\n":
                    threads.add(thread)
        except OSError:
            continue  # The thread has ended.
    return threads - {str(threading.get_native_id())}


def look_like_worker(name: str, parent_pid: int) -> None:
    """Make `current_process()` return a daemonic process with this name.

    `parent_process()` then returns the user's process.
    """
    parent = process.parent_process()  # Set in forks of the launcher.
    if parent is None:
        # The pidfd is readable after the end, like a sentinel of multiprocessing.
        sentinel = os.pidfd_open(parent_pid)
        parent = process._ParentProcess("MainProcess", parent_pid, sentinel)  # type: ignore[attr-defined]
    current = process.BaseProcess(name=name, daemon=True)
    current._parent_pid = parent_pid  # type: ignore[attr-defined]
    process._current_process = current  # type: ignore[attr-defined]
    process._parent_process = parent  # type: ignore[attr-defined]


def leave_signals_to_parent() -> None:
    """Ignore SIGINT and SIGTERM, which are sent to whole process groups.

    This sets a handler that does nothing, since programs that a worker runs would
    inherit SIG_IGN.
    """
    for number in _SIGNALS:
        signal.signal(number, _ignore)


def restore_signals_in_forks() -> None:
    """Restore SIGINT and SIGTERM in processes that this one forks from now on.

    The signals are blocked during the fork, so that none is lost.
    """
    os.register_at_fork(
        before=functools.partial(signal.pthread_sigmask, signal.SIG_BLOCK, _SIGNALS),
        after_in_parent=_unblock,
        after_in_child=_restore_signals,
    )


def _ignore(number: int, frame: object) -> None:
    """Do nothing."""


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _restore_signals() -> None:
    if signal.getsignal(signal.SIGINT) is _ignore:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is _ignore:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unblock()
