# cython: boundscheck=False, wraparound=False
"""Applies the steps of a dataset to blocks of its elements.

None stands for an absent element, which is not passed to any step.  If the user's code
raises, the step's `note_failure` adds a note about the origin, and the exception
propagates.  steps.pxd has the loop over the steps of one element.
"""
cimport numpy as cnp
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from gristmill._hot.calls cimport call_one
from gristmill._hot.cancellation cimport cancelled_count, check_thread

cnp.import_array()


cdef const int64_t* _int64_data(
    object array, Py_ssize_t n, str name
) except? NULL:
    """Return the data of a contiguous int64 array of n elements."""
    if (
        not cnp.PyArray_CheckExact(array)
        or cnp.PyArray_TYPE(<cnp.ndarray>array) != cnp.NPY_INT64
        or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array)
        or cnp.PyArray_SIZE(<cnp.ndarray>array) != n
    ):
        raise TypeError(
            f"{name} must be a contiguous int64 array of {n} elements, got {array!r}."
        )
    return <const int64_t*>cnp.PyArray_DATA(<cnp.ndarray>array)


cdef list _wide_indices_of(object indices, Py_ssize_t n):
    """Return the integers of an array of dtype object; None for any other array.

    Also returns None for a wrong size, so that `_int64_data` raises the error.
    """
    if cnp.PyArray_Check(indices) and cnp.PyArray_TYPE(indices) == cnp.NPY_OBJECT:
        if cnp.PyArray_SIZE(indices) == n:
            return indices.tolist()
    return None


def apply(list calls not None, list elements not None, indices, list out=None):
    """Apply calls, one after another, to each element and return the results.

    Absent elements stay absent.

    Args:
        calls: Tuples (kind, call, note_failure, draws or None).  MAP is ``call(x)``,
            MAP_WITH_INDEX is ``call(i, x)``.  RANDOM_MAP is ``call(x, rng)``; ``draws``
            returns the generator for the element's index.  FILTER makes elements absent
            if ``call(x)`` is false.  If a call raises, ``note_failure`` is called with
            the exception and the element's index before the exception propagates.
        elements: The n elements.
        indices: The indices of the elements, int64 of shape (n,), or Python ints in an
            array of dtype object.
        out: A list to which the results are appended, and which is returned; None: a
            new list.
    """
    cdef Py_ssize_t i, k, count = PyList_GET_SIZE(calls), n = PyList_GET_SIZE(elements)
    cdef list wide_indices = _wide_indices_of(indices, n)
    cdef const int64_t* index_of = NULL
    cdef object element, function
    cdef tuple step
    cdef vector[Step] steps
    cdef BlockContext context
    if wide_indices is None:
        index_of = _int64_data(indices, n, "indices")
    if out is None:
        out = []
    steps.resize(count)
    for k in range(count):
        step = calls[k]
        steps[k] = make_step(step[0], step[1], step[3])
        if steps[k].kind == RANDOM_MAP and steps[k].draws is NULL:
            raise TypeError(
                f"calls[{k}] is a RANDOM_MAP and must have draws, got None."
            )
    context.draws = <PyObject*>None
    context.wide_indices = NULL
    if wide_indices is not None:
        context.wide_indices = <PyObject*>wide_indices
    context.step_times_ns = NULL
    context.clock = 0
    k = 0  # The number of the current call, for `note_failure`.
    try:
        if count == 1 and steps[0].kind == MAP:
            # Most blocks have one map step.  This loop takes a quarter fewer
            # instructions.
            function = <object>steps[0].call
            for i in range(n):
                if cancelled_count:
                    check_thread()
                element = <object>PyList_GET_ITEM(elements, i)
                if element is not None:
                    element = call_one(function, element)
                out.append(element)
            return out
        for i in range(n):
            if cancelled_count:
                check_thread()
            element = <object>PyList_GET_ITEM(elements, i)
            if element is not None:
                element = run_steps(
                    element, 0 if wide_indices is not None else index_of[i], i, steps,
                    &context, None, &k,
                )
            out.append(element)
    except Exception as error:
        calls[k][2](error, index_of[i] if wide_indices is None else wide_indices[i])
        raise
    return out


def scatter(list part not None, places, list out not None):
    """Set ``out[places[i]]`` to ``part[i]``; ``places`` is int64 of shape (len(part),).

    Raises:
        IndexError: A place is not in the list.
    """
    cdef Py_ssize_t i, n = PyList_GET_SIZE(part), size = PyList_GET_SIZE(out)
    cdef const int64_t* place_of = _int64_data(places, n, "places")
    for i in range(n):
        if not 0 <= place_of[i] < size:
            raise IndexError(
                f"places must be less than {size}, the length of the list, and not"
                f" negative, got {place_of[i]}."
            )
        out[place_of[i]] = <object>PyList_GET_ITEM(part, i)
