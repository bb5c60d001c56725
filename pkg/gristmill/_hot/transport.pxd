cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewFromDescr(
        type subtype, cnp.dtype descr, int nd, const cnp.npy_intp* dims,
        const cnp.npy_intp* strides, void* data, int flags, PyObject* obj
    )

# The format; gristmill._slow.transport describes it.
cdef enum:
    MAGIC = 0x31534D47  # "GMS1"
    HEADER_BYTES = 64
    ERROR = 1
    MAX_DEPTH = 32
    COPIES = 4
    CACHE_LIMIT = 512

cdef enum Kind:
    ARRAY, OBJECT, DICT, LIST, TUPLE

cdef struct Header:
    uint32_t magic
    uint32_t outputs
    uint32_t vector_room
    uint32_t status
    uint64_t table

cdef struct Row:
    uint64_t layout_at
    uint32_t layout_bytes
    uint32_t flags
    uint64_t rest_at
    uint64_t rest_bytes
    uint64_t keys_at
    uint32_t n_keys
    uint32_t vector_len


cdef class SlotWriter:
    cdef readonly uintptr_t address
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t used

    # Like alloc, but goes on beyond the end, to find out what is needed.
    cdef Py_ssize_t _take(self, Py_ssize_t nbytes, Py_ssize_t align) noexcept

    # Where to write nbytes at an offset; NULL beyond the end.
    cdef char* _at(self, Py_ssize_t offset, Py_ssize_t nbytes) noexcept

    # Copies bytes into the slot if they fit; returns their offset.
    cdef Py_ssize_t _put(
        self, const void* data, Py_ssize_t nbytes, Py_ssize_t align
    ) noexcept

    # Offset of an array that lies in the slot, or of a copy made there.
    cdef Py_ssize_t _place(self, cnp.ndarray array) except -1


cdef class Reader:
    cdef const char* slot
    cdef uint64_t used
    cdef object base_factory
    cdef object base
    cdef uint64_t copy_limit
    cdef uint64_t copies_left
    cdef const uint64_t* words  # Offsets and dimensions, advanced by array().
    cdef list objects
    cdef Py_ssize_t next_object

    # The address of bytes that are certain to be committed.
    cdef const char* at(self, uint64_t offset, uint64_t nbytes) except NULL

    # Whether a leaf of this size is copied out; if so it is accounted for.
    cdef bint copies(self, uint64_t nbytes) noexcept

    cdef int need_base(self) except -1
    cdef object array(self, cnp.dtype descr, int n)
    cdef object buffer(self, uint64_t offset, uint64_t nbytes)
    cdef object build(self, tuple spec)
