# cython: boundscheck=False, wraparound=False
"""Splits elements into the leaves that are written to a slot."""
cimport cython
cimport numpy as cnp
from libc.stdint cimport uintptr_t

from gristmill._hot.slot_format cimport (
    ARRAY, DICT, LIGHT_PARTS, LIST, MAX_DEPTH, OBJECT, TUPLE,
)

cnp.import_array()

cdef extern from "numpy/arrayobject.h":
    bint PyDataType_REFCHK(cnp.dtype dtype) noexcept

cdef tuple OBJECT_SPEC = (OBJECT,)


cdef inline bint _is_stored_as_bytes(cnp.ndarray array):
    """Return whether an array can be stored as plain bytes, dtype and shape."""
    cdef cnp.dtype descr = array.descr
    if PyDataType_REFCHK(descr) or cnp.PyArray_ITEMSIZE(array) == 0:
        return False
    return (<object>descr).metadata is None


cdef inline bint _is_container(object part) noexcept:
    return type(part) is dict or type(part) is list or type(part) is tuple


cdef bint _has_only_objects(object container) except -1:
    """Return whether a container contains no containers and no arrays."""
    cdef object part
    for part in (<dict>container).values() if type(container) is dict else container:
        if _is_container(part) or cnp.PyArray_CheckExact(part):
            return False
    return True


@cython.final
cdef class SlotWalk:
    """Splits one element into its arrays and its other leaves."""

    def __cinit__(self):
        self.arrays = []
        self.objects = []
        self.has_str_keys = True

    cdef tuple make_spec(self, object tree, int depth):
        """Return the spec of a tree, and add its leaves to `arrays` and `objects`.

        Returns None if its containers are nested too deeply.
        """
        self.visited += 1
        if cnp.PyArray_CheckExact(tree) and _is_stored_as_bytes(<cnp.ndarray>tree):
            self.arrays.append(tree)
            return (
                ARRAY, (<cnp.ndarray>tree).dtype, cnp.PyArray_NDIM(<cnp.ndarray>tree)
            )
        if not _is_container(tree) or (
            not self.large.empty() and self.large.count(<uintptr_t><void*>tree)
        ):
            self.objects.append(tree)
            return OBJECT_SPEC
        return None if depth == MAX_DEPTH else self.make_container_spec(tree, depth)

    cdef tuple make_container_spec(self, object tree, int depth):
        """Return the spec of a dict, list or tuple; None like `make_spec`."""
        cdef Py_ssize_t arrays_before = len(self.arrays)
        cdef Py_ssize_t objects_before = len(self.objects)
        cdef Py_ssize_t visited_before = self.visited
        cdef object part
        cdef tuple child
        cdef list children = []
        if _has_only_objects(tree):
            self.visited += len(tree)
            return self.make_object_spec(tree, visited_before)
        for part in (<dict>tree).values() if type(tree) is dict else tree:
            child = self.make_spec(part, depth + 1)
            if child is None:
                return None
            children.append(child)
        if len(self.arrays) == arrays_before:
            # Without arrays, one pickle of the whole is shorter than one for each part.
            del self.objects[objects_before:]
            return self.make_object_spec(tree, visited_before)
        if type(tree) is not dict:
            return (LIST if type(tree) is list else TUPLE, tuple(children))
        for part in <dict>tree:
            if type(part) is not str:
                self.has_str_keys = False
        return (DICT, tuple(tree), tuple(children))

    cdef tuple make_object_spec(self, object tree, Py_ssize_t visited_before):
        """Return the spec of a container without arrays.

        `visited_before` is the value of `visited` when the walk of the container began.
        """
        self.objects.append(tree)
        if self.visited - visited_before > LIGHT_PARTS:
            self.large.insert(<uintptr_t><void*>tree)
        return OBJECT_SPEC
