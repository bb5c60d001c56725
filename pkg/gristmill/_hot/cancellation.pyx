"""Cancels the loops of threads whose results are not wanted any more.

A thread cannot be stopped in the middle of the user's code.  The loops that call that
code ask between two calls whether their thread is cancelled.
"""
from cpython.pythread cimport PyThread_get_thread_ident

cdef int cancelled_threads = 0
cdef set _cancelled = set()


class Cancelled(BaseException):
    """This thread was cancelled: its results are not wanted any more."""


def cancel(thread):
    """Make the loops of a thread raise `Cancelled`, by its ``threading.get_ident()``."""
    global cancelled_threads
    _cancelled.add(thread)
    cancelled_threads = len(_cancelled)


def revive(thread):
    """Take `cancel` back: another thread may get the same number."""
    global cancelled_threads
    _cancelled.discard(thread)
    cancelled_threads = len(_cancelled)


def revive_all():
    """Take all calls of `cancel` back, for a fork, which has none of the threads."""
    global cancelled_threads
    _cancelled.clear()
    cancelled_threads = 0


cdef int check_thread() except -1:
    if PyThread_get_thread_ident() in _cancelled:
        raise Cancelled
    return 0


def check():
    """Raise `Cancelled` if this thread is cancelled."""
    if cancelled_threads:
        check_thread()
