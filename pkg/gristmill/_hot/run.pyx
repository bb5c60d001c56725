# cython: boundscheck=False, wraparound=False
"""Reads records and runs the user's steps on them.

Shapes of arrays are compared once; after that, indexing is unchecked.
"""
cimport numpy as cnp
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyObject_GetItem
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.sequence cimport PySequence_GetItem
from cpython.tuple cimport PyTuple_CheckExact
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset
from libcpp.vector cimport vector
from posix.time cimport clockid_t

from gristmill._hot.cancellation cimport cancelled_threads, check_thread
from gristmill._hot.draw cimport Draws
from gristmill._hot.steps cimport (
    RANDOM_MAP, TIMED_STEPS, BlockContext, Step, make_step, now, run_steps,
)

from gristmill._base.argument_checks import stands_for
from gristmill._hot.error_location import ErrorLocation, as_failure, without_seed

cnp.import_array()

cdef extern from "Python.h":
    # Returns a borrowed reference, or NULL, without an exception, if neither the class
    # nor its bases have the name.
    PyObject* _PyType_Lookup(type kind, object name) noexcept

cdef enum:
    _ALL = -2  # Instead of a step's number: reading all records together.

cdef object _DROPPED = object()

# The time of each stage, in ns, by name; None while measuring is off.
cdef dict _spent = None
cdef clockid_t _clock = 0
# The thread that is measured, and the total time counted there, in ns.
cdef unsigned long _thread = 0
cdef int64_t _counted = 0
READING = ":read"


def measure(dict spent, int clock=0):
    """Start adding the times of this thread's stages to ``spent``; None: stop.

    ``spent`` maps names of stages to ns.  ``clock`` is one of ``time.CLOCK_*``.  Only
    one thread of a process is measured at a time.
    """
    global _spent, _clock, _thread, _counted
    _spent, _clock, _counted = spent, clock, 0
    _thread = PyThread_get_thread_ident()


cdef inline bint _measures() noexcept:
    return _spent is not None and PyThread_get_thread_ident() == _thread


def begin():
    """Begin a stage and return the argument for `end`; -1 while measuring is off."""
    return now(_clock) - _counted if _measures() else -1


def end(str name not None, int64_t began):
    """End a stage and return whether it was measured.

    Its time excludes that of the stages inside it.
    """
    if began < 0 or not _measures():
        return False
    _count(name, now(_clock) - _counted - began)
    return True


cdef _count(str name, int64_t took):
    global _counted
    _counted += took
    _spent[name] = _spent.get(name, 0) + took


cdef const int64_t* _int64s(object array, Py_ssize_t n) except? NULL:
    """Return the data of a contiguous int64 array of n elements; n = -1: any number."""
    if (
        not cnp.PyArray_CheckExact(array)
        or cnp.PyArray_NDIM(<cnp.ndarray>array) != 1
        or cnp.PyArray_TYPE(<cnp.ndarray>array) != cnp.NPY_INT64
        or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array)
    ):
        raise TypeError(
            "keys and indices must be contiguous int64 arrays of shape (n,), got"
            f" {array!r:.100}."
        )
    if n >= 0 and cnp.PyArray_SIZE(<cnp.ndarray>array) != n:
        raise ValueError(
            f"keys and indices must have {n} items, one for each element, got"
            f" {len(array)}."
        )
    return <const int64_t*>cnp.PyArray_DATA(<cnp.ndarray>array)


cpdef bint reads_together(kind) except -1:
    """Return whether a class's ``__getitems__`` can replace its ``__getitem__``."""
    # This check runs for each block, and most sources have no __getitems__.
    if _PyType_Lookup(<type>kind, "__getitems__") is NULL:
        return False
    return stands_for(kind, "__getitems__", "__getitem__")


cdef object _read_all(object source, const int64_t* keys, Py_ssize_t n):
    """Return all records at once, or None if the source cannot do that or raises.

    If it raises, the caller reads the records one at a time.  That keeps those before
    the bad one, and the error names the bad one.
    """
    cdef Py_ssize_t i
    if n == 0 or not reads_together(type(source)):
        return None
    try:
        # Copy the list, since the source may keep using it.
        records = list(source.__getitems__([keys[i] for i in range(n)]))
    except Exception:
        return None
    if len(records) != n:
        raise ValueError(
            f"{type(source).__name__}.__getitems__ must return one record for each of"
            f" {n} keys, got {len(records)} records."
        )
    return records


cdef inline bint _takes_integers(object source):
    """Return whether a source can be indexed by a C integer, without a Python int.

    Classes written in Python need the Python int anyway.
    """
    return (
        PyList_CheckExact(source) or PyTuple_CheckExact(source)
        or type(source) is range
        or (cnp.PyArray_CheckExact(source)
            and cnp.PyArray_NDIM(<cnp.ndarray>source) > 0)
    )


cdef inline int64_t _lap(int64_t began, int64_t* spent) noexcept:
    """Add the time since ``began`` to ``spent`` and return the current time, in ns."""
    cdef int64_t ended = now(_clock)
    spent[0] += ended - began
    return ended


cdef _add(int64_t* spent, tuple steps):
    """Count the times of a block's steps, and of reading, which is the last item."""
    cdef Py_ssize_t k
    _count(READING, spent[TIMED_STEPS])
    for k in range(min(len(steps), TIMED_STEPS)):
        _count(steps[k][2], spent[k])


def run_block(
    source, keys, indices, tuple steps not None, draws, uintptr_t record_address,
    list elements=None, list out=None, Py_ssize_t most=-1,
):
    """Return ``(elements, kept, consumed, error)`` for a block of n records.

    Args:
        source: The source, or None to take the records from ``elements``.
        keys: The keys passed to the source, int64 of shape (n,).
        indices: The number of each record in the stream, int64 of shape (n,), for
            ``map_with_index`` and the random generators.
        steps: Tuples (kind, call, name).
        draws: Has ``at(index)``; None if there is no seed.
        record_address: The address of an int64 that gets each key before its record is
            processed, or 0.
        elements: The records if ``source`` is None.
        out: A list to which the outputs are appended; None: a new list.
        most: The block ends after this many outputs; -1: no limit.

    The returned ``elements`` are the outputs.  ``kept`` are their positions in the
    block, or None if no record was dropped.  An exception of the source or of a step
    ends the block and is returned as ``error``, with a note; ``consumed`` then includes
    the failing record.  A StopIteration means that the source has no more records; that
    of a step is returned as a RuntimeError.
    """
    cdef Py_ssize_t n = -1 if elements is None else PyList_GET_SIZE(elements)
    cdef const int64_t* key_of = _int64s(keys, n)
    n = cnp.PyArray_DIM(<cnp.ndarray>keys, 0)
    cdef const int64_t* index_of = _int64s(indices, n)
    cdef Py_ssize_t i = 0, step = _ALL
    cdef int64_t* current_record = <int64_t*>record_address
    cdef bint kept_all = True, as_sequence = _takes_integers(source)
    cdef bint has_steps = len(steps) > 0
    cdef int64_t times[TIMED_STEPS + 1]
    cdef int64_t* spent = NULL
    cdef int64_t began = 0
    cdef list kept = [], records = elements
    cdef Py_ssize_t left = most  # Outputs up to the end.
    cdef object element, error = None
    cdef vector[Step] calls
    cdef BlockContext context
    if out is None:
        out = []
    for kind, call, _ in steps:
        calls.push_back(make_step(kind, call, None))
    if _measures():
        memset(times, 0, sizeof(times))
        spent = times
    context.draws = <PyObject*>draws
    context.wide = NULL
    context.spent = spent
    context.clock = _clock
    try:
        if spent is not NULL:
            began = now(_clock)
        if records is None and not as_sequence:
            if current_record is not NULL and n > 0:
                current_record[0] = key_of[0]
            records = _read_all(source, key_of, n if most < 0 else min(n, most))
            if records is not None:
                n = PyList_GET_SIZE(records)
        if spent is not NULL:
            began = _lap(began, &spent[TIMED_STEPS])
        for i in range(n):
            if cancelled_threads:
                check_thread()
            step = -1
            if current_record is not NULL:
                current_record[0] = key_of[i]
            if spent is not NULL:
                began = now(_clock)
            if records is not None:
                element = <object>PyList_GET_ITEM(records, i)
            elif as_sequence and key_of[i] >= 0:
                element = PySequence_GetItem(source, key_of[i])
            else:
                element = PyObject_GetItem(source, key_of[i])
            if spent is not NULL:
                _lap(began, &spent[TIMED_STEPS])
            if has_steps:
                element = run_steps(
                    element, index_of[i], i, calls, &context, _DROPPED, &step
                )
            if element is _DROPPED:
                if kept_all:
                    kept_all = False
                    kept = list(range(i))
                continue
            out.append(element)
            if not kept_all:
                kept.append(i)
            left -= 1
            if left == 0:
                break
        else:
            i = n - 1
    except Exception as raised:
        error = raised
        if step >= 0:
            error = as_failure(raised, steps[step][2])
            if steps[step][0] == RANDOM_MAP and type(draws) is not Draws:
                if draws is None or draws.at(index_of[i]) is None:
                    error = without_seed(error, steps[step][2])
        name = None if step < 0 else steps[step][2]
        location = ErrorLocation(name, key_of[i], index_of[i])
        # If all records were read together, the failing one is unknown: add only text.
        error.add_note(str(location) if step == _ALL else location)
    if spent is not NULL and _measures():
        _add(spent, steps)
    return out, None if kept_all else kept, i + 1, error
