# cython: boundscheck=False, wraparound=False
"""Keeps a slot of shared memory from being reused while arrays view it."""
cimport cython
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
