# cython: boundscheck=False, wraparound=False
"""Reads ints from a list that its owner may change at any time."""
cimport numpy as cnp
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uintptr_t

cnp.import_array()

cdef extern from "Python.h":
    # With borrowed references, because counting them would write to the ints' memory.
    PyObject* PyList_GET_ITEM(object values, Py_ssize_t index) noexcept
    bint PyLong_CheckExact(PyObject* item) noexcept
    int64_t PyLong_AsLongLong(PyObject* item) except? -1

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void* address) nogil

cdef enum:
    # In items.  Most ints of a long list are not in a cache, and the processor can
    # load several at once.
    _PREFETCH_DISTANCE = 16


def ints_at(list values, indices):
    """Return the items of a list at some indices, as a new int64 array.

    Args:
        values: The list.
        indices: An int64 array of shape (n,), or a range with the step 1.

    Raises:
        IndexError: An index is negative, or not less than the length of the list.
        TypeError: An item is not an int, or is of a subclass such as bool.
        OverflowError: An item has more than 64 bits.
    """
    cdef Py_ssize_t count = len(indices), length = PyList_GET_SIZE(values), i
    cdef bint is_range = type(indices) is range
    cdef int64_t first = indices.start if is_range else 0
    cdef const int64_t[:] array = None if is_range else indices
    cdef cnp.npy_intp size = count
    cdef cnp.ndarray result = cnp.PyArray_EMPTY(1, &size, cnp.NPY_INT64, 0)
    cdef int64_t* data = <int64_t*>cnp.PyArray_DATA(result)
    cdef int64_t index
    cdef PyObject* item
    for i in range(count):
        index = first + i if is_range else array[i]
        if not 0 <= index < length:
            raise IndexError(
                f"indices must be less than {length}, the length of the list, and not"
                f" negative, got {index}."
            )
        # First pass: store the address of each int.  No Python code runs before the end
        # of the second pass, so the list keeps its items, unless that pass raises.
        data[i] = <int64_t><uintptr_t>PyList_GET_ITEM(values, index)
    for i in range(count):
        if i + _PREFETCH_DISTANCE < count:
            prefetch(<void*><uintptr_t>data[i + _PREFETCH_DISTANCE])
        item = <PyObject*><uintptr_t>data[i]
        if not PyLong_CheckExact(item):
            raise TypeError(
                f"Items of the list must be of class int, got {<object>item!r}."
            )
        data[i] = PyLong_AsLongLong(item)
    return result
