"""Declares C API calls that create neither argument tuples nor exception objects."""
from cpython.object cimport PyObject

cdef extern from *:
    """
    static inline int gristmill_raise_pending(void) { return -1; }
    """
    # Raises the pending exception of a function that returned NULL.
    int raise_pending "gristmill_raise_pending"() except -1

cdef extern from "Python.h":
    object call_one "PyObject_CallOneArg"(object callable, object argument)
    # Returns a new reference, or NULL with a pending exception; see `raise_pending`.
    PyObject* try_call_one "PyObject_CallOneArg"(object callable, object argument) noexcept
    # Like `try_call_one`, but takes no references to the callable and the argument.
    PyObject* try_call "PyObject_CallOneArg"(
        PyObject* callable, PyObject* argument
    ) noexcept
    # Returns a new reference.  Returns NULL at the end, or with a pending exception.
    PyObject* try_next "PyIter_Next"(object iterator) noexcept
    # Returns -1 with a pending exception.
    int try_is_true "PyObject_IsTrue"(object value) noexcept
    PyObject* PyErr_Occurred() noexcept
    object PyObject_Vectorcall(
        object callable, PyObject* const* arguments, size_t count, PyObject* names
    )
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    void Py_INCREF(PyObject* reference) noexcept
    void Py_DECREF(PyObject* reference) noexcept


cdef inline object take_ownership(PyObject* reference):
    """Take ownership of a new reference and return its object."""
    found = <object>reference
    Py_DECREF(reference)
    return found


cdef inline object call_two(object callable, object first, object second):
    cdef PyObject* arguments[3]
    arguments[0] = NULL
    arguments[1] = <PyObject*>first
    arguments[2] = <PyObject*>second
    return PyObject_Vectorcall(
        callable, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL
    )
