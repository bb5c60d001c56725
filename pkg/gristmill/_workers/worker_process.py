"""What `multiprocessing` says of a worker, to the user's code that runs in it.

A worker that was started by the launcher is no `multiprocessing.Process` of the user's
program, yet it is one to `current_process()` and `parent_process()`: daemonic, and with
the user's process as its parent.
"""

import functools
import os
import signal
from multiprocessing import process

_BOTH = (signal.SIGINT, signal.SIGTERM)


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
