# cython: boundscheck=False, wraparound=False
"""Keeps a slot of shared memory from being reused while arrays view it."""
cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uintptr_t

cdef extern from "core/memory/arena.hpp" namespace "gristmill":
    cdef cppclass ArenaSlot:
        pass
    void release_view(ArenaSlot* slot) noexcept nogil


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class SlotView:
    """The base of all arrays that view one output in a slot.

    Args:
        slot: Address of the core's ``ArenaSlot``.  The caller held one view of it, which
            is this object's from now on.

    It counts as one view until its end, which takes no lock, allocates nothing and
    may come on any thread.  The core never frees a slot that has views.
    """

    cdef ArenaSlot* _slot

    def __cinit__(self, uintptr_t slot):
        self._slot = <ArenaSlot*>slot

    def __dealloc__(self):
        if self._slot is not NULL:
            release_view(self._slot)

    def slice(self, uintptr_t address, Py_ssize_t nbytes):
        """Return an object whose memoryview is nbytes writable bytes at an address."""
        cdef SlotSlice part = SlotSlice.__new__(SlotSlice)
        part._owner = self
        part._address = address
        part._nbytes = nbytes
        return part


@cython.final
@cython.no_gc
cdef class SlotSlice:
    """Bytes of a slot, for ``memoryview``; keeps its SlotView alive."""

    cdef SlotView _owner
    cdef uintptr_t _address
    cdef Py_ssize_t _nbytes

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <void*>self._address, self._nbytes, 0, flags)
