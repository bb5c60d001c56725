cdef extern from "core/memory/arena.hpp" namespace "gristmill":
    cdef cppclass ArenaSlot:
        pass
    void release_view(ArenaSlot* slot) noexcept nogil


cdef class SlotView:
    cdef ArenaSlot* _slot
