# cython: boundscheck=False, wraparound=False
"""Reads records and runs the user's steps on them.

Arrays are indexed unchecked after their shapes have been compared once.
"""
cimport numpy as cnp
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.sequence cimport PySequence_GetItem
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uintptr_t

from gristmill._hot.draw cimport Draws

from gristmill._hot.place import Place

cnp.import_array()

cpdef enum:
    MAP
    RANDOM_MAP
    MAP_WITH_INDEX
    FILTER

cdef enum:
    _ALL = -2  # In place of a step: reading all records together.

cdef object _DROPPED = object()


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
    """Whether ``__getitems__`` stands for ``__getitem__``.

    It does not where a subclass overrides ``__getitem__`` alone.  Only the class is
    asked: a wrapper may pass other names on to what it wraps.
    """
    if not hasattr(kind, "__getitems__"):
        return False
    for cls in kind.__mro__:
        if "__getitems__" in cls.__dict__:
            return True
        if "__getitem__" in cls.__dict__:
            return False
    return False


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


cdef object _place(
    tuple steps, Py_ssize_t step, const int64_t* keys, const int64_t* indices,
    Py_ssize_t i
):
    place = Place(None if step < 0 else steps[step][2], keys[i], indices[i])
    # Where all were read together, no record is to blame: what remains is the text.
    return str(place) if step == _ALL else place


cdef object _run(
    object element, int64_t index, tuple steps, Draws own, object draws, Py_ssize_t* step
):
    """What the steps make of a record, or _DROPPED; ``step`` is the one at work."""
    cdef Py_ssize_t k
    cdef tuple found
    cdef int opcode
    cdef object call, generator = None
    for k in range(PyTuple_GET_SIZE(steps)):
        step[0] = k
        found = <tuple>PyTuple_GET_ITEM(steps, k)
        opcode = <object>PyTuple_GET_ITEM(found, 0)
        call = <object>PyTuple_GET_ITEM(found, 1)
        if opcode == MAP:
            element = call(element)
        elif opcode == FILTER:
            if not call(element):
                return _DROPPED
        elif opcode == RANDOM_MAP:
            # All random steps of a record share one generator.
            if generator is None:
                if own is not None:
                    generator = own.draw(index)
                elif draws is not None:
                    generator = draws.at(index)
            element = call(element, generator)
        else:
            element = call(index, element)
    return element


def run_block(
    source, keys, indices, tuple steps not None, draws, uintptr_t at, list elements=None
):
    """Return ``(elements, kept, consumed, error)`` for a block of n records.

    ``keys`` and ``indices`` are int64 of shape (n,): what the source is asked for,
    and the number of each record in the stream, which names it to
    ``map_with_index`` and to the random generator.  With ``source`` None the
    records are ``elements``.  ``draws`` has ``at(index)``, or is None where there is
    no seed.  ``at`` is the address of an int64 that gets each key before its record
    is processed, or 0.

    ``elements`` are the outputs, ``kept`` their positions in the block or None if no
    record was dropped.  An exception of the source or of a step ends the block: it
    comes back as ``error``, with a note, and ``consumed`` counts its record, too.
    """
    cdef Py_ssize_t n = -1 if elements is None else PyList_GET_SIZE(elements)
    cdef const int64_t* key_of = _int64s(keys, n)
    n = cnp.PyArray_DIM(<cnp.ndarray>keys, 0)
    cdef const int64_t* index_of = _int64s(indices, n)
    cdef Py_ssize_t i = 0, step = _ALL
    cdef int64_t* told = <int64_t*>at
    cdef bint kept_all = True, as_sequence = _takes_integers(source)
    cdef Draws own = draws if type(draws) is Draws else None
    cdef list out = [], kept = [], records = elements
    cdef object element, error = None
    try:
        if records is None and not as_sequence:
            if told is not NULL and n > 0:
                told[0] = key_of[0]
            records = _read_all(source, key_of, n)
        for i in range(n):
            step = -1
            if told is not NULL:
                told[0] = key_of[i]
            if records is not None:
                element = <object>PyList_GET_ITEM(records, i)
            elif as_sequence and key_of[i] >= 0:
                element = PySequence_GetItem(source, key_of[i])
            else:
                element = source[<object>key_of[i]]
            element = _run(element, index_of[i], steps, own, draws, &step)
            if element is _DROPPED:
                if kept_all:
                    kept_all = False
                    kept = list(range(i))
                continue
            out.append(element)
            if not kept_all:
                kept.append(i)
        i = n - 1
    except Exception as raised:
        error = raised
        error.add_note(_place(steps, step, key_of, index_of, i))
    return out, None if kept_all else kept, i + 1, error
