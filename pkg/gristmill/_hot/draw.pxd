from libc.stdint cimport int64_t, uint64_t


# The state that NumPy's Philox keeps behind bitgen_t.state.  NumPy does not
# promise this layout, so it is checked before its first use.
cdef struct PhiloxState:
    uint64_t* counter
    uint64_t* key
    int buffer_pos
    uint64_t buffer[4]
    int has_uint32
    unsigned int uinteger


cdef class Reused:
    cdef readonly object seed
    cdef dict _arguments  # Of Philox.
    cdef object _bits
    cdef object _generator
    cdef PhiloxState* _state  # Inside _bits; NULL: the layout is not as expected.
    cdef Py_ssize_t _bits_refs  # References to _bits when only we have any.

    cdef int _renew(self) except -1
    cdef int _own(self) except -1


cdef class Draws(Reused):
    cdef uint64_t _seed_low
    cdef uint64_t _seed_high
    cdef bint _fits  # Whether seed + index is a key for every index, by the struct.

    # A generator in its first state for the record with this global index.
    cdef object draw(self, int64_t index)


cdef class OpDraws(Reused):
    cdef uint64_t _op_seed
    cdef uint64_t _key_low
    cdef uint64_t _key_high

    # A generator in its first state for the element with this index; negative
    # ones are an OverflowError.
    cdef object draw(self, int64_t index)
    cdef object _draw(self, uint64_t index)
