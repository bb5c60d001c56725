cdef extern from "core/memory/arena.hpp" namespace "gristmill":
    cdef cppclass Slot:
        pass
    void release_view(Slot* slot) noexcept nogil


cdef class SlotView:
    cdef Slot* _slot
