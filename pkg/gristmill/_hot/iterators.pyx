# cython: boundscheck=False, wraparound=False
"""Iterators of dataset chains: one call of the user's code per element.

None stands for an absent element, which is passed only to filters.  If the user's code
raises, a method of the subclass adds a note about the origin, and the exception
propagates.
"""
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_SET_ITEM
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from gristmill._hot.calls cimport (
    Py_DECREF, Py_INCREF, PyErr_Occurred, call_two, raise_pending, take_ownership,
    try_call_one, try_is_true, try_next,
)
from gristmill._hot.cancellation cimport cancelled_count, check_thread
from gristmill._hot.draw cimport OpDraws

cdef extern from *:
    """
    // If the next call is to be timed, returns from __next__ with the result of
    // time_call, without adding the frame to the traceback of an exception.  `kind` is
    // the class whose __next__ is timed.
    #define GRISTMILL_TIME(s, kind) if (s->_timing == 1) return gristmill_time(s, kind)
    """
    void return_if_timed "GRISTMILL_TIME"(
        TimedIterator iterator, PyObject* kind
    ) noexcept

cdef extern from "Python.h":
    PyObject* PyObject_CallFunctionObjArgs(object callable, ...) noexcept

cdef object _END = object()

cpdef enum:
    WINDOW = 1000


cdef class TimedIterator:
    """Base class of iterators whose calls can be timed and whose drops are counted.

    A subclass that drops elements defines ``_check_dropped(dropped)``.  It is called
    after each `WINDOW` elements if some of them were dropped, with their number.
    """

    # The number of elements since the last check, and of those that were dropped.
    cdef Py_ssize_t _window_seen, _window_dropped
    # 1 if the next call is made through ``_watch.call``, 2 during that call, else 0.
    # `ChainWatch._set_timing` sets it, perhaps in a thread that reads blocks.
    cdef public int _timing

    def __iter__(self):
        return self

    cdef int _count(self, bint is_kept) except -1:
        cdef Py_ssize_t dropped
        self._window_seen += 1
        self._window_dropped += not is_kept
        if self._window_seen == WINDOW:
            dropped = self._window_dropped
            self._window_seen = self._window_dropped = 0
            if dropped:
                (<object>self)._check_dropped(dropped)
        return 0


cdef PyObject* time_call "gristmill_time"(
    TimedIterator iterator, PyObject* kind
) noexcept:
    """Return ``iterator._watch.call(iterator, kind.__next__)``; NULL if it raises.

    ``_watch`` is a `ChainWatch`, which gristmill._observe sets before the first call.
    """
    call, advance = (<object>iterator)._watch.call, (<object>kind).__next__
    iterator._timing = 2
    cdef PyObject* element = PyObject_CallFunctionObjArgs(
        call, <PyObject*>iterator, <PyObject*>advance, <PyObject*>NULL
    )
    # Otherwise the watch changed it during the call, for example to 0.
    if iterator._timing == 2:
        iterator._timing = 1
    return element


cdef class StepIterator(TimedIterator):
    """Iterates over the results of a call for each element of an iterator.

    A subclass defines ``_note_failure(error)``, which is called with an exception of
    the call before the exception propagates.

    Attributes:
        counter: The number of elements seen, including absent ones.  `FilterStep` does
            not count.
    """

    cdef object _elements, _call
    cdef public int64_t counter

    def __init__(self, elements, call):
        self._elements = elements
        self._call = call

    def __next__(self):
        cdef int64_t count = self.counter
        return_if_timed(self, <PyObject*>StepIterator)
        element = next(self._elements)
        self.counter = count + 1
        if element is None:
            return None
        try:
            return self._result(element, count)
        except Exception as error:
            (<object>self)._note_failure(error)
            raise

    # Returns the result for an element that is not absent; `count` others came before.
    cdef object _result(self, object element, int64_t count):
        raise NotImplementedError

    cdef int _fail(self) except -1:
        """Raise the pending exception of a call."""
        try:
            raise_pending()
        except Exception as error:
            (<object>self)._note_failure(error)
            raise


cdef class MapStep(StepIterator):
    """Iterates over ``call(x)``."""

    def __next__(self):
        cdef PyObject* result
        return_if_timed(self, <PyObject*>MapStep)
        element = next(self._elements)
        self.counter += 1
        if element is None:
            return None
        result = try_call_one(self._call, element)
        if result is NULL:
            self._fail()
        return take_ownership(result)


cdef class MapWithIndexStep(StepIterator):
    """Iterates over ``call(i, x)``; i counts the elements."""

    cdef object _result(self, object element, int64_t count):
        return call_two(self._call, count, element)


cdef class RandomMapStep(StepIterator):
    """Iterates over ``call(x, rng)``; the generator depends on the element's number.

    If ``count`` processes share the data, element n of process ``index`` draws from
    generator ``index + n * count``.  A subclass defines ``_processes()``, which returns
    ``(index, count)`` and is called at the first element.
    """

    cdef OpDraws _draws
    cdef int64_t _first, _stride  # ``(index, count)``; 0 before the first element.

    def __init__(self, elements, call, OpDraws draws not None):
        StepIterator.__init__(self, elements, call)
        self._draws = draws

    cdef object _result(self, object element, int64_t count):
        if self._stride == 0:
            self._first, self._stride = (<object>self)._processes()
        return call_two(
            self._call, element, self._draws.draw(self._first + count * self._stride)
        )


cdef class FilterStep(StepIterator):
    """Iterates over the elements for which ``call(x)`` is true.

    None is passed to the call like any other element.
    """

    def __next__(self):
        cdef PyObject* result
        cdef int is_kept
        return_if_timed(self, <PyObject*>FilterStep)
        while True:
            element = next(self._elements)
            result = try_call_one(self._call, element)
            is_kept = -1
            if result is not NULL:
                is_kept = try_is_true(<object>result)
                Py_DECREF(result)
            if is_kept < 0:
                self._fail()
            self._count(is_kept)
            if is_kept:
                return element
            if cancelled_count:
                check_thread()


cdef class MixStep(TimedIterator):
    """Takes elements from several iterators in turn.

    It ends when an iterator has no element at its turn.  A subclass defines
    ``_look_up_turns(first)``, which returns a list with the index of the iterator for
    each of the turns `first`, `first` + 1, ...

    Attributes:
        index: The number of turns taken.
        stopped: Whether an iterator had no element at its turn.
    """

    cdef list _parts
    # The index of the iterator for each of the turns from `_first_turn` on.
    cdef list _turns
    cdef int64_t _first_turn
    cdef public int64_t index
    cdef public bint stopped

    def __init__(self, parts):
        self._parts = list(parts)
        self._turns = []

    def __next__(self):
        cdef int64_t place = self.index - self._first_turn
        cdef Py_ssize_t part_index
        cdef PyObject* element
        return_if_timed(self, <PyObject*>MixStep)
        if self.stopped:
            raise StopIteration
        if not 0 <= place < PyList_GET_SIZE(self._turns):
            self._turns = (<object>self)._look_up_turns(self.index)
            self._first_turn = self.index
            place = 0
        part_index = self._turns[place]
        self.index += 1
        element = try_next(self._parts[part_index])
        if element is NULL:
            if PyErr_Occurred() is not NULL:
                self._fail(part_index)
            self.stopped = True
            raise StopIteration
        return take_ownership(element)

    cdef int _fail(self, Py_ssize_t part_index) except -1:
        """Raise the pending exception of an iterator."""
        try:
            raise_pending()
        except Exception as error:
            error.add_note(
                f"Exception caught while processing dataset @ input_index={part_index}"
            )
            raise


cdef class RoundRobin(TimedIterator):
    """Takes one element from each of several iterators, round after round.

    Each place of the round contains an iterator, or None if it is vacant.  A subclass
    defines two methods.  ``_vacate(place)`` is called when an iterator has ended.
    ``_occupy(place)`` is called if the place is vacant; it puts an iterator there and
    returns True, or returns False.  If an iterator ends or raises, the round continues
    with the next place.  If a place was just occupied, it continues with that place.

    Attributes:
        places: The iterators.
        turn: The index of the place whose turn it is.
    """

    cdef public list places
    cdef public Py_ssize_t turn

    def __init__(self, Py_ssize_t places):
        self.places = [None] * places
        self.turn = 0

    def __next__(self):
        cdef Py_ssize_t vacant_count = 0
        cdef Py_ssize_t count = PyList_GET_SIZE(self.places)
        cdef object iterator, element
        return_if_timed(self, <PyObject*>RoundRobin)
        while vacant_count < count:
            iterator = <object>PyList_GET_ITEM(self.places, self.turn)
            if iterator is not None:
                vacant_count = 0
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
                if cancelled_count:
                    check_thread()
            elif not (<object>self)._occupy(self.turn):
                vacant_count += 1
                self._advance()
        raise StopIteration

    cdef void _advance(self) noexcept:
        self.turn += 1
        if self.turn >= PyList_GET_SIZE(self.places):
            self.turn = 0


cdef class BlockFeeder(TimedIterator):
    """Iterates over elements that are fetched in blocks.

    A subclass defines ``_refill(first)``, which returns a list of elements from number
    `first` on; the list is empty at the end.  BlockFeeder then owns and changes it.
    If an element raises, ``_refill`` increments `position` before the exception
    propagates.

    Args:
        keep_absent: Whether None is returned like other elements, instead of skipped.

    Attributes:
        position: The number of elements returned or skipped so far.
        keeps_absent: The argument `keep_absent`.
    """

    cdef list _block  # Elements already returned are replaced by None.
    cdef Py_ssize_t _next_in_block
    cdef readonly bint keeps_absent
    cdef public int64_t position

    def __init__(self, bint keep_absent):
        self.keeps_absent = keep_absent
        self._block = []

    def __next__(self):
        cdef PyObject* element
        return_if_timed(self, <PyObject*>BlockFeeder)
        while True:
            if self._next_in_block == PyList_GET_SIZE(self._block):
                self.seek(self.position)
                if cancelled_count:
                    check_thread()
                self._block = (<object>self)._refill(self.position)
                if not self._block:
                    raise StopIteration
            # Move the block's reference to the caller.
            element = PyList_GET_ITEM(self._block, self._next_in_block)
            Py_INCREF(<PyObject*>None)
            PyList_SET_ITEM(self._block, self._next_in_block, None)
            self._next_in_block += 1
            self.position += 1
            if not self.keeps_absent:
                # Like `_count`, without a call, for most elements.
                if self._window_seen + 1 < WINDOW and element is not <PyObject*>None:
                    self._window_seen += 1
                else:
                    self._count(element is not <PyObject*>None)
                if element is <PyObject*>None:
                    Py_DECREF(element)
                    continue
            return take_ownership(element)

    def offer(self, list block not None):
        """Set the next elements, in place of buffered ones, without fetching them.

        This object owns the list from now on, and changes it.
        """
        self.seek(self.position)
        self._block = block

    def count_buffered(self):
        """Return the number of elements that were fetched but not yet returned."""
        return PyList_GET_SIZE(self._block) - self._next_in_block

    def seek(self, int64_t position):
        """Continue after the first `position` elements."""
        self._block = []
        self._next_in_block = 0
        self.position = position


def take(elements, Py_ssize_t count):
    """Return up to `count` elements of an iterator, fewer only at its end."""
    cdef list out = []
    cdef Py_ssize_t i
    cdef PyObject* element
    for i in range(count):
        if cancelled_count:
            check_thread()
        element = try_next(elements)
        if element is NULL:
            if PyErr_Occurred() is not NULL:
                raise_pending()
            break
        out.append(<object>element)
        Py_DECREF(element)
    return out
