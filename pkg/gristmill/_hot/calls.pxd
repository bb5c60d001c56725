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


cdef inline object call_two(object call, object first, object second):
    cdef PyObject* args[3]
    args[0] = NULL
    args[1] = <PyObject*>first
    args[2] = <PyObject*>second
    return PyObject_Vectorcall(
        call, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL
    )
