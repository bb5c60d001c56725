from libc.stdint cimport uintptr_t
from libcpp.unordered_set cimport unordered_set


cdef class SlotWalk:
    cdef list arrays
    cdef list objects
    # False if a key of a dict is not a str.  Different keys may then be equal (1 and
    # True), so the spec cannot be looked up in a cache.
    cdef bint has_str_keys
    cdef Py_ssize_t visited  # The number of parts visited so far.
    # Addresses of containers with many parts and no array; each is walked only once.
    cdef unordered_set[uintptr_t] large

    cdef tuple make_spec(self, object tree, int depth)
    cdef tuple make_container_spec(self, object tree, int depth)
    cdef tuple make_object_spec(self, object tree, Py_ssize_t visited_before)
