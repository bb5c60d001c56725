"""Calls of Python's C API that build no tuple of arguments and no exception object."""
from cpython.object cimport PyObject

cdef extern from *:
    """
    static inline int gristmill_raise_pending(void) { return -1; }
    """
    # Raises the exception that a function which returned NULL has left behind.
    int raise_pending "gristmill_raise_pending"() except -1

cdef extern from "Python.h":
    object call_one "PyObject_CallOneArg"(object callable, object argument)
    # A new reference; NULL if it has raised, for `raise_pending`.
    PyObject* try_call_one "PyObject_CallOneArg"(object callable, object argument) noexcept
    # As above, without a reference to the callable or the argument.
    PyObject* try_call "PyObject_CallOneArg"(
        PyObject* callable, PyObject* argument
    ) noexcept
    # A new reference; NULL at the end, or if it has raised, for `raise_pending`.
    PyObject* try_next "PyIter_Next"(object iterator) noexcept
    # -1 if it has raised, for `raise_pending`.
    int try_is_true "PyObject_IsTrue"(object value) noexcept
    PyObject* PyErr_Occurred() noexcept
    object PyObject_Vectorcall(
        object callable, PyObject* const* arguments, size_t count, PyObject* names
    )
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    void Py_INCREF(PyObject* reference) noexcept
    void Py_DECREF(PyObject* reference) noexcept


cdef inline object owned(PyObject* reference):
    """Return the object of a new reference."""
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
