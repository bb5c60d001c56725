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
        slot: The address of the core's ``ArenaSlot``.  The caller transfers ownership
            of one view of the slot to this object.

    The destructor releases that view.  It takes no lock and allocates nothing, and may
    run on any thread.  The core never frees a slot that has views.
    """

    cdef ArenaSlot* _slot  # NULL if __cinit__ raised.

    def __cinit__(self, uintptr_t slot):
        self._slot = <ArenaSlot*>slot

    def __dealloc__(self):
        if self._slot is not NULL:
            release_view(self._slot)
