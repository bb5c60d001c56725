# cython: boundscheck=False, wraparound=False
"""Takes elements from several iterators in turn."""
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE

cdef object _END = object()


cdef class Turns:
    """Iterates over iterators in turn: one element of each, round after round.

    A place in the round is an iterator, or None where there is none (yet).  A subclass
    has ``_vacate(place)``, called where an iterator has ended, and ``_occupy(place)``,
    called where there is none: it puts one there and returns True, or returns False.
    The round goes on behind a place that has ended or whose element failed; it goes on
    with a place that was just occupied.

    Args:
        places: How many there are.

    Attributes:
        places: The iterators.
        turn: The place whose turn it is.
    """

    cdef public list places
    cdef public Py_ssize_t turn

    def __init__(self, Py_ssize_t places):
        self.places = [None] * places
        self.turn = 0

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t vacant = 0
        cdef Py_ssize_t count = PyList_GET_SIZE(self.places)
        cdef object iterator, element
        while vacant < count:
            iterator = <object>PyList_GET_ITEM(self.places, self.turn)
            if iterator is not None:
                vacant = 0
                try:
                    element = next(iterator, _END)
                except:
                    self._advance()
                    raise
                if element is not _END:
                    self._advance()
                    return element
                (<object>self)._vacate(self.turn)
                self._advance()
            elif not (<object>self)._occupy(self.turn):
                vacant += 1
                self._advance()
        raise StopIteration

    cdef void _advance(self) noexcept:
        self.turn += 1
        if self.turn >= PyList_GET_SIZE(self.places):
            self.turn = 0
