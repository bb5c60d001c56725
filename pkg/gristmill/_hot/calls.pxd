"""Calls into Python that cost no tuple of arguments and no exception object."""
from cpython.object cimport PyObject

cdef extern from "Python.h":
    object PyObject_CallOneArg(object callable, object arg)
    object PyObject_Vectorcall(
        object callable, PyObject* const* args, size_t nargsf, PyObject* kwnames
    )
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    # A new reference; NULL at the end.
    PyObject* PyIter_Next(object iterator) except? NULL
    void Py_DECREF(PyObject* object)
    # New references and truths; NULL and -1 where something was raised, which is set
    # and goes on when the caller says so.
    PyObject* try_one "PyObject_CallOneArg"(object callable, object arg) noexcept
    PyObject* _try_some "PyObject_Vectorcall"(
        object callable, PyObject* const* args, size_t nargsf, PyObject* kwnames
    ) noexcept
    int try_truth "PyObject_IsTrue"(object value) noexcept


cdef inline object call_two(object call, object first, object second):
    cdef PyObject* args[3]
    args[0] = NULL
    args[1] = <PyObject*>first
    args[2] = <PyObject*>second
    return PyObject_Vectorcall(
        call, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL
    )


cdef inline PyObject* try_two(object call, object first, object second) noexcept:
    cdef PyObject* args[3]
    args[0] = NULL
    args[1] = <PyObject*>first
    args[2] = <PyObject*>second
    return _try_some(call, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
