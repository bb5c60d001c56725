"""Cancels the loops of threads whose results are no longer needed.

A thread cannot be stopped in the middle of the user's code.  The loops check between
two calls of the user's code whether their thread is cancelled.
"""
from cpython.pythread cimport PyThread_get_thread_ident

# The GIL guards both.  `cancelled_count` is the length of `_cancelled_ids`.
cdef int cancelled_count = 0
cdef set _cancelled_ids = set()


class Cancelled(BaseException):
    """This thread was cancelled: its results are no longer needed."""


def cancel(thread_id):
    """Make the loops of a thread raise `Cancelled`.

    ``thread_id`` is what ``threading.get_ident()`` returns in the thread.
    """
    global cancelled_count
    _cancelled_ids.add(thread_id)
    cancelled_count = len(_cancelled_ids)


def revive(thread_id):
    """Undo `cancel`, since a later thread may get the same identifier."""
    global cancelled_count
    _cancelled_ids.discard(thread_id)
    cancelled_count = len(_cancelled_ids)


def revive_all():
    """Undo all calls of `cancel`, in a fork, which has none of the threads."""
    global cancelled_count
    _cancelled_ids.clear()
    cancelled_count = 0


cdef int check_thread() except -1:
    if PyThread_get_thread_ident() in _cancelled_ids:
        raise Cancelled
    return 0


def check():
    """Raise `Cancelled` if this thread is cancelled."""
    if cancelled_count:
        check_thread()
