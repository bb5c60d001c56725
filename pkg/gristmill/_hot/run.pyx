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
from posix.time cimport CLOCK_MONOTONIC, clockid_t

from gristmill._hot.cancellation cimport cancelled_count, check_thread
from gristmill._hot.draw cimport Draws
from gristmill._hot.steps cimport (
    RANDOM_MAP, TIMED_STEPS, BlockContext, Lap, Step, add_lap, clock_ns, make_step,
    run_steps,
)

from gristmill._base.argument_checks import stands_for
from gristmill._hot.error_location import (
    ErrorLocation, as_failure, as_missing_seed_error,
)

cnp.import_array()

cdef extern from "Python.h":
    # Returns a borrowed reference, or NULL, without an exception, if neither the class
    # nor its bases have the name.
    PyObject* _PyType_Lookup(type kind, object name) noexcept

# Instead of a step's number: reading one record, or all records together.
cdef enum:
    _READING_ONE = -1
    _READING_ALL = -2

# The most intervals that are recorded between two calls of `measure`.
cdef enum:
    _MAX_INTERVALS = 50_000

cdef object _DROPPED = object()

# The GIL guards the state of measuring.
# The time of each stage, in ns, by name; None while measuring is off.
cdef dict _stage_times_ns = None
cdef clockid_t _clock = 0
# The thread that is measured, and the total time counted there.  `begin` and `end`
# subtract it from the clock, so that a stage excludes the stages inside it.
cdef unsigned long _measured_thread = 0
cdef int64_t _counted_ns = 0
# Gets (name, start in ns, end in ns) of each stage, by the monotonic clock; None while
# intervals are not recorded.
cdef list _intervals = None
# The start of each stage that has not ended, by the `start_ns` that `begin` returned.
cdef dict _starts_ns = {}
READING = ":read"


def measure(dict stage_times_ns, int clock=0, list intervals=None):
    """Start adding the times of this thread's stages to ``stage_times_ns``; None: stop.

    ``stage_times_ns`` maps names of stages to ns.  ``clock`` is one of
    ``time.CLOCK_*``.  ``intervals`` gets a tuple (name, start, end) for each call of a
    stage, in ns by the monotonic clock; None: they are not recorded.  Only one thread
    of a process is measured at a time.
    """
    global _stage_times_ns, _clock, _measured_thread, _counted_ns, _intervals
    _stage_times_ns, _clock, _counted_ns = stage_times_ns, clock, 0
    _intervals = intervals
    _starts_ns.clear()
    _measured_thread = PyThread_get_thread_ident()


cdef inline bint _is_measuring() noexcept:
    return (
        _stage_times_ns is not None
        and PyThread_get_thread_ident() == _measured_thread
    )


def begin():
    """Begin a stage and return `start_ns` for `end`; -1 while measuring is off."""
    cdef int64_t start_ns
    if not _is_measuring():
        return -1
    start_ns = clock_ns(_clock) - _counted_ns
    if _intervals is not None:
        _starts_ns[start_ns] = clock_ns(CLOCK_MONOTONIC)
    return start_ns


def end(str name not None, int64_t start_ns):
    """End a stage and return whether it was measured.

    Its time excludes that of the stages inside it.
    """
    if start_ns < 0 or not _is_measuring():
        return False
    _count(name, clock_ns(_clock) - _counted_ns - start_ns)
    if _intervals is not None and start_ns in _starts_ns:
        _record(name, _starts_ns.pop(start_ns), clock_ns(CLOCK_MONOTONIC))
    return True


cdef _count(str name, int64_t duration_ns):
    """Add a duration to the time of a stage."""
    global _counted_ns
    _counted_ns += duration_ns
    _stage_times_ns[name] = _stage_times_ns.get(name, 0) + duration_ns


cdef const int64_t* _int64_data(object array, Py_ssize_t n) except? NULL:
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
    """Return the list of n records, or None if the source cannot do that or raises.

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


cdef inline int64_t _add_lap(int64_t start_ns, int64_t* total_ns) noexcept:
    """Add the time since ``start_ns`` to ``total_ns``; return the current time."""
    cdef int64_t end_ns = clock_ns(_clock)
    total_ns[0] += end_ns - start_ns
    return end_ns


cdef _count_block(int64_t* step_times_ns, tuple steps):
    """Count the times of a block's steps, and of reading, which is the last item.

    The last step that is measured includes the time of all steps after it.
    """
    cdef Py_ssize_t k
    _count(READING, step_times_ns[TIMED_STEPS])
    for k in range(min(len(steps), TIMED_STEPS)):
        _count(steps[k][2], step_times_ns[k])


cdef _record(str name, int64_t start_ns, int64_t end_ns):
    """Record an interval, unless there are too many."""
    if PyList_GET_SIZE(_intervals) < _MAX_INTERVALS:
        _intervals.append((name, start_ns, end_ns))


cdef _record_laps(const vector[Lap]& laps, tuple steps):
    """Record the intervals of a block's steps, and of reading."""
    cdef const Lap* lap
    cdef size_t k
    for k in range(laps.size()):
        lap = &laps[k]
        name = READING if lap.step < 0 else steps[lap.step][2]
        _record(name, lap.start_ns, lap.end_ns)


def run_block(
    source, keys, indices, tuple steps not None, draws, uintptr_t record_address,
    list elements=None, list out=None, Py_ssize_t max_outputs=-1,
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
        max_outputs: The block ends after this many outputs; -1: no limit.

    The returned ``elements`` are the outputs.  ``kept`` is a list of their places in
    the block, or None if no record was dropped.  ``consumed`` is the number of records
    processed, with dropped ones.  ``error`` is None, unless an exception of the source
    or of a step ends the block: then it is that exception, with a note, and
    ``consumed`` includes the failing record.  A StopIteration means that the source has
    no more records; that of a step is returned as a RuntimeError.
    """
    cdef Py_ssize_t n = -1 if elements is None else PyList_GET_SIZE(elements)
    cdef const int64_t* key_of = _int64_data(keys, n)
    n = cnp.PyArray_DIM(<cnp.ndarray>keys, 0)
    cdef const int64_t* index_of = _int64_data(indices, n)
    cdef Py_ssize_t i = 0, step_number = _READING_ALL
    cdef int64_t* current_record = <int64_t*>record_address
    cdef bint kept_all = True, takes_integers = _takes_integers(source)
    cdef bint has_steps = len(steps) > 0
    cdef int64_t times[TIMED_STEPS + 1]
    cdef int64_t* step_times_ns = NULL
    cdef int64_t start_ns = 0
    cdef list kept = [], records = elements
    cdef Py_ssize_t outputs_left = max_outputs
    cdef object element, error = None
    cdef vector[Step] calls
    cdef BlockContext context
    cdef vector[Lap] laps
    cdef int64_t lap_start_ns = 0
    if out is None:
        out = []
    for kind, call, _ in steps:
        calls.push_back(make_step(kind, call, None))
    if _is_measuring():
        memset(times, 0, sizeof(times))
        step_times_ns = times
        context.laps = NULL
        if _intervals is not None:
            context.laps = &laps
    context.draws = <PyObject*>draws
    context.wide_indices = NULL
    context.step_times_ns = step_times_ns
    context.clock = _clock
    try:
        if step_times_ns is not NULL:
            if context.laps is not NULL:
                lap_start_ns = clock_ns(CLOCK_MONOTONIC)
            start_ns = clock_ns(_clock)
        if records is None and not takes_integers:
            if current_record is not NULL and n > 0:
                current_record[0] = key_of[0]
            records = _read_all(
                source, key_of, n if max_outputs < 0 else min(n, max_outputs)
            )
            if records is not None:  # Perhaps fewer than n, because of max_outputs.
                n = PyList_GET_SIZE(records)
        if step_times_ns is not NULL:
            start_ns = _add_lap(start_ns, &step_times_ns[TIMED_STEPS])
            if context.laps is not NULL and elements is None and records is not None:
                add_lap(&laps, _READING_ALL, lap_start_ns)
        for i in range(n):
            if cancelled_count:
                check_thread()
            step_number = _READING_ONE
            if current_record is not NULL:
                current_record[0] = key_of[i]
            if step_times_ns is not NULL:
                if context.laps is not NULL:
                    lap_start_ns = clock_ns(CLOCK_MONOTONIC)
                start_ns = clock_ns(_clock)
            if records is not None:
                element = <object>PyList_GET_ITEM(records, i)
            elif takes_integers and key_of[i] >= 0:
                element = PySequence_GetItem(source, key_of[i])
            else:
                element = PyObject_GetItem(source, key_of[i])
            if step_times_ns is not NULL:
                _add_lap(start_ns, &step_times_ns[TIMED_STEPS])
                if context.laps is not NULL and records is None:
                    add_lap(&laps, _READING_ONE, lap_start_ns)
            if has_steps:
                element = run_steps(
                    element, index_of[i], i, calls, &context, _DROPPED, &step_number
                )
            if element is _DROPPED:
                if kept_all:
                    kept_all = False
                    kept = list(range(i))
                continue
            out.append(element)
            if not kept_all:
                kept.append(i)
            outputs_left -= 1
            if outputs_left == 0:
                break
        else:
            i = n - 1  # Also right for n = 0, where the loop does not set i.
    except Exception as raised:
        error = raised
        if step_number >= 0:
            error = as_failure(raised, steps[step_number][2])
            # Without a seed, the step got None as its generator.
            if steps[step_number][0] == RANDOM_MAP and type(draws) is not Draws:
                if draws is None or draws.at(index_of[i]) is None:
                    error = as_missing_seed_error(error, steps[step_number][2])
        name = None if step_number < 0 else steps[step_number][2]
        location = ErrorLocation(name, key_of[i], index_of[i])
        # If all records were read together, the failing one is unknown: add only text.
        error.add_note(str(location) if step_number == _READING_ALL else location)
    if step_times_ns is not NULL and _is_measuring():
        _count_block(step_times_ns, steps)
        if _intervals is not None:
            _record_laps(laps, steps)
    return out, None if kept_all else kept, i + 1, error
