# cython: boundscheck=False, wraparound=False
"""Returns a random generator for each record without creating one for each record.

Each record of a sampler has its own key (Draws).  Each element of an operation has its
own counter (OpDraws).
"""
cimport cython
from cpython.number cimport PyNumber_Index
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint64_t, uintptr_t

import numpy as np

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject* o) nogil

cdef extern from "numpy/random/bitgen.h":
    ctypedef struct bitgen_t:
        void* state

cdef object _Generator = None  # From numpy.random, which is slow to import.
cdef object _Philox = None

# 1 if PhiloxState matches NumPy's layout, else 0; -1: unchecked.
cdef int _layout_matches = -1


cdef PhiloxState* _state_of(object bit_generator) except NULL:
    cdef bitgen_t* bitgen = <bitgen_t*>PyCapsule_GetPointer(
        bit_generator.capsule, "BitGenerator"
    )
    return <PhiloxState*>bitgen.state


cdef bint _contains(object bit_generator, void* address, Py_ssize_t nbytes):
    """Return whether a memory range lies inside a Python object."""
    cdef Py_ssize_t size = type(bit_generator).__basicsize__
    cdef uintptr_t begin = <uintptr_t><PyObject*>bit_generator
    cdef uintptr_t at = <uintptr_t>address
    return begin <= at and at + nbytes <= begin + size


cdef inline void _set_counter(
    PhiloxState* state, uint64_t op_seed, uint64_t index
) noexcept:
    """Set the counter to [0, 0, op_seed, index], and discard buffered numbers."""
    cdef int i
    for i in range(4):
        state.buffer[i] = 0
    state.counter[0] = 0
    state.counter[1] = 0
    state.counter[2] = op_seed
    state.counter[3] = index
    state.buffer_pos = 4  # All four numbers of the buffer are used up.
    state.has_uint32 = 0
    state.uinteger = 0


cdef int _load_numpy() except -1:
    """Import NumPy's generators and test their layout, at the first call."""
    global _layout_matches, _Generator, _Philox
    if _layout_matches < 0:
        _Generator = np.random.Generator
        _Philox = np.random.Philox
        _layout_matches = _test_layout()
    return 0


cdef bint _test_layout() except -1:
    """Return whether PhiloxState can reset a Philox.

    Changes the key of a used Philox by the struct, and compares it with a new one.
    """
    bit_generator = _Philox(key=(5 << 64) + 3, counter=(9 << 192) + 7)
    cdef PhiloxState* state = _state_of(bit_generator)
    if not _contains(bit_generator, state, sizeof(PhiloxState)):
        return False
    if not _contains(bit_generator, state.counter, 32):
        return False
    if not _contains(bit_generator, state.key, 16):
        return False
    if state.counter[0] != 7 or state.counter[3] != 9:
        return False
    if state.key[0] != 3 or state.key[1] != 5:
        return False
    reused = _Generator(bit_generator)
    reused.random(3)
    reused.integers(0, 9, dtype=np.uint32)
    _set_counter(state, 0, 0)
    state.key[0] = 11
    state.key[1] = 2
    fresh = _Generator(_Philox(key=(2 << 64) + 11))
    same = repr(bit_generator.state) == repr(fresh.bit_generator.state)
    return same and reused.random() == fresh.random()


cdef class ReusableGenerator:
    """One generator that is reset for each draw, unless a caller still holds it."""

    cdef int _make_generator(self) except -1:
        self._bit_generator = _Philox(**self._arguments)
        self._generator = _Generator(self._bit_generator)
        self._state = _state_of(self._bit_generator) if _layout_matches else NULL
        self._unshared_refcount = Py_REFCNT(<PyObject*>self._bit_generator)
        return 0

    cdef int _ensure_unshared(self) except -1:
        """Create another generator if a caller still references the last one."""
        if (
            Py_REFCNT(<PyObject*>self._generator) > 1
            or Py_REFCNT(<PyObject*>self._bit_generator) != self._unshared_refcount
        ):
            self._make_generator()
        return 0


@cython.final
cdef class Draws(ReusableGenerator):
    """Random generators of records: one object whose key is changed in place.

    Args:
        seed: The sampler's seed. ``at(index)`` is in the first state of
            ``np.random.Generator(np.random.Philox(key=seed + index))``.

    The generator of a record is reused by the next call of ``at``, unless the caller
    still holds a reference to it.  In that case ``at`` creates another one.
    """

    def __init__(self, seed):
        self.seed = int(seed)
        self._arguments = {"key": 0}
        _load_numpy()
        # Two's complement, so that the sum below is right for any seed and index.
        self._seed_low = self.seed & 0xFFFFFFFFFFFFFFFF
        self._seed_high = (self.seed >> 64) & 0xFFFFFFFFFFFFFFFF
        self._has_valid_keys = _layout_matches == 1 and 0 <= self.seed < 1 << 127
        self._make_generator()

    def __reduce__(self):
        return Draws, (self.seed,)

    cdef object draw(self, int64_t index):
        cdef uint64_t low
        if not self._has_valid_keys or index < 0:
            # Make a new one.  NumPy checks the key, and raises its own error if it is
            # out of range.
            return _Generator(_Philox(key=self.seed + index))
        self._ensure_unshared()
        low = self._seed_low + <uint64_t>index
        _set_counter(self._state, 0, 0)
        self._state.key[0] = low
        # `low` is smaller than one summand if the sum has a carry.
        self._state.key[1] = self._seed_high + (low < self._seed_low)
        return self._generator

    def at(self, int64_t index):
        """Return the generator of the record with this global index."""
        return self.draw(index)


cdef uint64_t _counter_word(object value, str name) except? 0:
    """Return a value as a word of the counter, or raise OverflowError."""
    try:
        return PyNumber_Index(value)
    except OverflowError:
        raise OverflowError(f"{name} must be in [0, 2**64), got {value}.") from None


def restart(generator, index, op_seed=0):
    """Reset a Philox generator to the first draw for one index.

    The key is kept and the counter becomes [0, 0, op_seed, index].
    """
    cdef uint64_t op_seed_word = _counter_word(op_seed, "op_seed")
    cdef uint64_t index_word = _counter_word(index, "index")
    _load_numpy()
    bit_generator = generator.bit_generator
    if type(bit_generator) is not _Philox:
        raise TypeError(
            "generator must be an np.random.Generator of a Philox, got one of a"
            f" {type(bit_generator).__name__}."
        )
    if _layout_matches:
        _set_counter(_state_of(bit_generator), op_seed_word, index_word)
    else:
        key = bit_generator.state["state"]["key"]
        counter = np.array([0, 0, op_seed_word, index_word], np.uint64)
        bit_generator.state = _Philox(key=key, counter=counter).state


@cython.final
cdef class OpDraws(ReusableGenerator):
    """Random generators of an operation's elements: one object that is reset in place.

    Args:
        seed: The operation's seed, any seed that ``np.random.Philox`` accepts.
            ``at(index)`` is ``np.random.Generator(np.random.Philox(seed))`` with the
            counter [0, 0, op_seed, index].
        op_seed: In [0, 2**64).

    Raises:
        OverflowError: ``op_seed`` or an index is out of range.

    The generator of an element is reused by the next call of ``at``, unless the caller
    still holds a reference to it.  In that case ``at`` creates another one.
    """

    def __init__(self, seed, op_seed=0):
        self._op_seed = _counter_word(op_seed, "op_seed")
        self.seed = seed
        self._arguments = {"seed": seed}
        _load_numpy()
        self._make_generator()
        key = self._bit_generator.state["state"]["key"]
        self._key_low = key[0]
        self._key_high = key[1]

    def __reduce__(self):
        return OpDraws, (self.seed, self._op_seed)

    @property
    def op_seed(self):
        return self._op_seed

    cdef object _draw(self, uint64_t index):
        if self._state == NULL:
            counter = np.array([0, 0, self._op_seed, index], np.uint64)
            return _Generator(_Philox(self.seed, counter=counter))
        self._ensure_unshared()
        _set_counter(self._state, self._op_seed, index)
        self._state.key[0] = self._key_low
        self._state.key[1] = self._key_high
        return self._generator

    cdef object draw(self, int64_t index):
        if index < 0:
            _counter_word(index, "index")
        return self._draw(<uint64_t>index)

    def at(self, index):
        """Return the generator of the element with this index."""
        return self._draw(_counter_word(index, "index"))
