from libc.stdint cimport int64_t, uint64_t


# The state of NumPy's Philox, which bitgen_t.state points to.  NumPy does not
# guarantee this layout, so it is checked before its first use.
cdef struct PhiloxState:
    uint64_t* counter
    uint64_t* key
    int buffer_pos
    uint64_t buffer[4]
    int has_uint32
    unsigned int uinteger


# One thread at a time may use an object.
cdef class ReusableGenerator:
    cdef readonly object seed
    cdef dict _arguments  # Keyword arguments for Philox.
    cdef object _bit_generator  # The Philox of _generator.
    cdef object _generator  # The generator that the last draw returned.
    # Inside _bit_generator; NULL if the layout is not as expected.
    cdef PhiloxState* _state
    # The reference count of _bit_generator if no caller holds it.
    cdef Py_ssize_t _unshared_refcount

    cdef int _make_generator(self) except -1
    cdef int _ensure_unshared(self) except -1


cdef class Draws(ReusableGenerator):
    cdef uint64_t _seed_low
    cdef uint64_t _seed_high
    # True if the layout is known, and seed + index is a valid key for every index >= 0.
    cdef bint _has_valid_keys

    # Returns a generator in its first state for the record with this global index.
    cdef object draw(self, int64_t index)


cdef class OpDraws(ReusableGenerator):
    cdef uint64_t _op_seed
    cdef uint64_t _key_low
    cdef uint64_t _key_high

    # Returns a generator in its first state for the element with this index.  Raises
    # OverflowError if the index is negative.
    cdef object draw(self, int64_t index)
    cdef object _draw(self, uint64_t index)
