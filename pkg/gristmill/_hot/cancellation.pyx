"""Cancels the loops of threads whose results are no longer needed.

A thread cannot be stopped in the middle of the user's code.  The loops check between
two calls of the user's code whether their thread is cancelled.
"""
from cpython.pythread cimport PyThread_get_thread_ident

cdef int cancelled_threads = 0
cdef set _cancelled = set()


class Cancelled(BaseException):
    """This thread was cancelled: its results are no longer needed."""


def cancel(thread):
    """Make the loops of a thread raise `Cancelled`.

    ``thread`` is the thread's ``threading.get_ident()``.
    """
    global cancelled_threads
    _cancelled.add(thread)
    cancelled_threads = len(_cancelled)


def revive(thread):
    """Undo `cancel`, since a later thread may get the same identifier."""
    global cancelled_threads
    _cancelled.discard(thread)
    cancelled_threads = len(_cancelled)


def revive_all():
    """Undo all calls of `cancel`, in a fork, which has none of the threads."""
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
