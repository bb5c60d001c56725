# cython: boundscheck=False, wraparound=False
"""Reads ints from a list that its owner may change at any time."""
cimport numpy as cnp
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uintptr_t

cnp.import_array()

cdef extern from "Python.h":
    # With borrowed references, because counting them would write to the ints' memory.
    PyObject* PyList_GET_ITEM(object values, Py_ssize_t place) noexcept
    bint PyLong_CheckExact(PyObject* item) noexcept
    int64_t PyLong_AsLongLong(PyObject* item) except? -1

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void* address) nogil

cdef enum:
    # Distance of the prefetch, in items.  Most ints of a long list are not in a cache,
    # and the processor can load several at once.
    _AHEAD = 16


def ints_at(list values, block):
    """Return the items of `values` at the places of a block, as a new int64 array.

    Args:
        values: The list.
        block: Places: an int64 array of shape (n,), or a range with the step 1.

    Raises:
        IndexError: A place is negative, or not less than the length of the list.
        TypeError: An item is not an int, or is of a subclass such as bool.
        OverflowError: An item has more than 64 bits.
    """
    cdef Py_ssize_t count = len(block), length = PyList_GET_SIZE(values), i
    cdef bint is_range = type(block) is range
    cdef int64_t first = block.start if is_range else 0
    cdef const int64_t[:] places = None if is_range else block
    cdef cnp.npy_intp size = count
    cdef cnp.ndarray found = cnp.PyArray_EMPTY(1, &size, cnp.NPY_INT64, 0)
    cdef int64_t* to = <int64_t*>cnp.PyArray_DATA(found)
    cdef int64_t place
    cdef PyObject* item
    for i in range(count):
        place = first + i if is_range else places[i]
        if not 0 <= place < length:
            raise IndexError(
                f"places must be less than {length}, the length of the list, and not"
                f" negative, got {place}."
            )
        # First pass: store the address of each int.
        to[i] = <int64_t><uintptr_t>PyList_GET_ITEM(values, place)
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(<void*><uintptr_t>to[i + _AHEAD])
        item = <PyObject*><uintptr_t>to[i]
        if not PyLong_CheckExact(item):
            raise TypeError(
                f"Items of the list must be of class int, got {<object>item!r}."
            )
        to[i] = PyLong_AsLongLong(item)
    return found
