# cython: boundscheck=False, wraparound=False
"""Reads records and runs the user's steps on them.

Arrays are indexed unchecked after their shapes have been compared once.
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
from posix.time cimport clock_gettime, clockid_t, timespec

from gristmill._hot.calls cimport call_one, call_two
from gristmill._hot.cancellation cimport cancelled_threads, check_thread
from gristmill._hot.draw cimport Draws

from gristmill._base.checks import stands_for
from gristmill._hot.place import Place, as_failure, without_seed

cnp.import_array()

cdef extern from "Python.h":
    # Borrowed; NULL without an exception if a class and its bases lack the name.
    PyObject* _PyType_Lookup(type kind, object name) noexcept

cpdef enum:
    MAP
    RANDOM_MAP
    MAP_WITH_INDEX
    FILTER

cdef enum:
    _ALL = -2  # In place of a step: reading all records together.

cdef object _DROPPED = object()

# Steps of a block whose times are taken, at most; reading is one more.
cdef enum:
    _TIMED_STEPS = 30

# What stages took, in ns, by their names; None while nobody measures.
cdef dict _spent = None
cdef clockid_t _clock = 0
# The thread that is measured, and all that was counted there.
cdef unsigned long _thread = 0
cdef int64_t _counted = 0
READING = ":read"


def measure(dict spent, int clock=0):
    """Add what stages take of this thread, in ns, to ``spent`` by name; None: no more.

    ``clock`` is one of ``time.CLOCK_*``.  One thread of a process is measured at a time.
    """
    global _spent, _clock, _thread, _counted
    _spent, _clock, _counted = spent, clock, 0
    _thread = PyThread_get_thread_ident()


cdef inline bint _measures() noexcept:
    return _spent is not None and PyThread_get_thread_ident() == _thread


def begin():
    """Begin a stage: pass the result, which is -1 where nobody measures, to `end`."""
    return _now() - _counted if _measures() else -1


def end(str name not None, int64_t began):
    """End a stage; what stages took that ended inside of it is not its own.

    Returns whether it was measured.
    """
    if began < 0 or not _measures():
        return False
    _count(name, _now() - _counted - began)
    return True


cdef _count(str name, int64_t took):
    global _counted
    _counted += took
    _spent[name] = _spent.get(name, 0) + took


cdef inline int64_t _now() noexcept:
    cdef timespec now
    clock_gettime(_clock, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef const int64_t* _int64s(object array, Py_ssize_t n) except? NULL:
    """The elements of a contiguous int64 array of n elements."""
    if (
        not cnp.PyArray_CheckExact(array)
        or cnp.PyArray_NDIM(<cnp.ndarray>array) != 1
        or cnp.PyArray_TYPE(<cnp.ndarray>array) != cnp.NPY_INT64
        or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array)
    ):
        raise TypeError(
            "keys and indices must be contiguous int64 arrays of shape (n,)"
        )
    if n >= 0 and cnp.PyArray_SIZE(<cnp.ndarray>array) != n:
        raise ValueError(f"expected {n} keys and indices, got {len(array)}")
    return <const int64_t*>cnp.PyArray_DATA(<cnp.ndarray>array)


cpdef bint reads_together(kind) except -1:
    """Return whether ``__getitems__`` stands for ``__getitem__``."""
    # Most sources have none; this is asked for each block.
    if _PyType_Lookup(<type>kind, "__getitems__") is NULL:
        return False
    return stands_for(kind, "__getitems__", "__getitem__")


cdef object _read_all(object source, const int64_t* keys, Py_ssize_t n):
    """All records at once, or None if the source cannot or one of them fails.

    In the second case they are read one at a time, so that those before the bad
    one are kept and the error names it.
    """
    cdef Py_ssize_t i
    if n == 0 or not reads_together(type(source)):
        return None
    try:
        # A copy: the source may go on using its own list.
        records = list(source.__getitems__([keys[i] for i in range(n)]))
    except Exception:
        return None
    if len(records) != n:
        raise ValueError(
            f"{type(source).__name__}.__getitems__ returned {len(records)} records"
            f" for {n} keys"
        )
    return records


cdef inline bint _takes_integers(object source):
    """Whether reading a slot by integer saves boxing the key.

    Classes written in Python want the box.
    """
    return (
        PyList_CheckExact(source) or PyTuple_CheckExact(source)
        or type(source) is range
        or (cnp.PyArray_CheckExact(source)
            and cnp.PyArray_NDIM(<cnp.ndarray>source) > 0)
    )


# A step, decoded once for a block; its tuple keeps ``call``.
cdef struct Step:
    int opcode
    PyObject* call


cdef inline object _run(
    object element,
    int64_t index,
    const vector[Step]& steps,
    Draws own,
    object draws,
    Py_ssize_t* step,
    int64_t* spent,
):
    """What the steps make of a record, or _DROPPED; ``step`` is the one at work.

    What each takes is added to ``spent``, unless that is NULL.
    """
    cdef Py_ssize_t k
    cdef int64_t began = 0 if spent is NULL else _now()
    cdef int opcode
    cdef object generator = None
    for k in range(<Py_ssize_t>steps.size()):
        step[0] = k
        opcode = steps[k].opcode
        if opcode == MAP:
            element = call_one(<object>steps[k].call, element)
        elif opcode == FILTER:
            if not call_one(<object>steps[k].call, element):
                element = _DROPPED
        elif opcode == RANDOM_MAP:
            # All random steps of a record share one generator.
            if generator is None:
                if own is not None:
                    generator = own.draw(index)
                elif draws is not None:
                    generator = draws.at(index)
            element = call_two(<object>steps[k].call, element, generator)
        else:
            element = call_two(<object>steps[k].call, index, element)
        if spent is not NULL:
            began = _lap(began, &spent[min(k, _TIMED_STEPS - 1)])
        if element is _DROPPED:
            break
    return element


cdef inline int64_t _lap(int64_t began, int64_t* spent) noexcept:
    """Add the time since ``began``; returns what it is now."""
    cdef int64_t now = _now()
    spent[0] += now - began
    return now


cdef _add(int64_t* spent, tuple steps):
    """Give what a block took to whoever measures; the last one is reading."""
    cdef Py_ssize_t k
    _count(READING, spent[_TIMED_STEPS])
    for k in range(min(len(steps), _TIMED_STEPS)):
        _count(steps[k][2], spent[k])


def run_block(
    source, keys, indices, tuple steps not None, draws, uintptr_t at, list elements=None,
    list out=None, Py_ssize_t most=-1,
):
    """Return ``(elements, kept, consumed, error)`` for a block of n records.

    ``keys`` and ``indices`` are int64 of shape (n,): what the source is asked for,
    and the number of each record in the stream, which names it to
    ``map_with_index`` and to the random generator.  With ``source`` None the
    records are ``elements``.  ``draws`` has ``at(index)``, or is None where there is
    no seed.  ``at`` is the address of an int64 that gets each key before its record
    is processed, or 0.  ``out``, if it is given, gets the outputs as they come.  The
    block ends after ``most`` outputs, unless that is -1.

    ``elements`` are the outputs, ``kept`` their positions in the block or None if no
    record was dropped.  An exception of the source or of a step ends the block: it
    comes back as ``error``, with a note, and ``consumed`` counts its record, too.  A
    StopIteration is the source's, which has no more; that of a step is a RuntimeError.
    """
    cdef Py_ssize_t n = -1 if elements is None else PyList_GET_SIZE(elements)
    cdef const int64_t* key_of = _int64s(keys, n)
    n = cnp.PyArray_DIM(<cnp.ndarray>keys, 0)
    cdef const int64_t* index_of = _int64s(indices, n)
    cdef Py_ssize_t i = 0, step = _ALL
    cdef int64_t* told = <int64_t*>at
    cdef bint kept_all = True, as_sequence = _takes_integers(source)
    cdef bint has_steps = len(steps) > 0
    cdef Draws own = draws if type(draws) is Draws else None
    cdef int64_t times[_TIMED_STEPS + 1]
    cdef int64_t* spent = NULL
    cdef int64_t began = 0
    cdef list kept = [], records = elements
    cdef Py_ssize_t left = most  # Outputs up to the end.
    cdef object element, error = None
    cdef vector[Step] decoded
    if out is None:
        out = []
    for opcode, call, _ in steps:
        decoded.push_back(Step(opcode, <PyObject*>call))
    if _measures():
        memset(times, 0, sizeof(times))
        spent = times
    try:
        if spent is not NULL:
            began = _now()
        if records is None and not as_sequence:
            if told is not NULL and n > 0:
                told[0] = key_of[0]
            records = _read_all(source, key_of, n if most < 0 else min(n, most))
            if records is not None:
                n = PyList_GET_SIZE(records)
        if spent is not NULL:
            began = _lap(began, &spent[_TIMED_STEPS])
        for i in range(n):
            if cancelled_threads:
                check_thread()
            step = -1
            if told is not NULL:
                told[0] = key_of[i]
            if spent is not NULL:
                began = _now()
            if records is not None:
                element = <object>PyList_GET_ITEM(records, i)
            elif as_sequence and key_of[i] >= 0:
                element = PySequence_GetItem(source, key_of[i])
            else:
                element = PyObject_GetItem(source, key_of[i])
            if spent is not NULL:
                _lap(began, &spent[_TIMED_STEPS])
            if has_steps:
                element = _run(element, index_of[i], decoded, own, draws, &step, spent)
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
            if steps[step][0] == RANDOM_MAP and own is None:
                if draws is None or draws.at(index_of[i]) is None:
                    error = without_seed(error, steps[step][2])
        place = Place(None if step < 0 else steps[step][2], key_of[i], index_of[i])
        # Where all were read together, no record is to blame: what remains is the text.
        error.add_note(str(place) if step == _ALL else place)
    if spent is not NULL and _measures():
        _add(spent, steps)
    return out, None if kept_all else kept, i + 1, error
