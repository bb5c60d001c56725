from libc.stdint cimport uintptr_t
from libcpp.unordered_set cimport unordered_set


cdef class SlotWalk:
    cdef list arrays
    cdef list objects
    # False if a key is not a str.  Different keys may then be equal (1 and True), so
    # the spec cannot be looked up in a cache.
    cdef bint plain
    cdef Py_ssize_t visited
    # Addresses of containers with many parts and no array; each is walked only once.
    cdef unordered_set[uintptr_t] heavy

    cdef tuple spec(self, object tree, int depth)
    cdef tuple container(self, object tree, int depth)
    cdef tuple as_object(self, object tree, Py_ssize_t before)
