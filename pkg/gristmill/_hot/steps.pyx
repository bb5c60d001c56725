# cython: boundscheck=False, wraparound=False
"""The steps of a dataset: one call of the user's code per element, and nothing else.

The functions run a step over a block of elements, for datasets that are indexed; the
classes run one over an iterator.  None stands for an element that is absent: no step
sees it.  What the user's code raises goes on; before, whoever runs the step is told, to
note where it came from.
"""
cimport numpy as cnp
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t

from gristmill._hot.draw cimport OpDraws

cnp.import_array()

cdef object _END = object()

WINDOW = 1000
cdef Py_ssize_t _WINDOW = WINDOW


cdef const int64_t* _indices_of(object indices, Py_ssize_t n) except? NULL:
    """The elements of a contiguous int64 array of n elements."""
    if (
        not cnp.PyArray_CheckExact(indices)
        or cnp.PyArray_TYPE(<cnp.ndarray>indices) != cnp.NPY_INT64
        or not cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>indices)
        or cnp.PyArray_SIZE(<cnp.ndarray>indices) != n
    ):
        raise TypeError(
            f"indices must be a contiguous int64 array of {n} elements, got {indices!r}"
        )
    return <const int64_t*>cnp.PyArray_DATA(<cnp.ndarray>indices)


# What a block of elements is called with, and what becomes of the result.
cdef enum Kind:
    MAP, FILTER, MAP_WITH_INDEX, RANDOM_MAP


cdef list _block(
    Kind kind, object call, list elements, object indices, OpDraws draws, object failed
):
    cdef Py_ssize_t i, n = PyList_GET_SIZE(elements)
    cdef const int64_t* index_of = _indices_of(indices, n)
    cdef list out = []
    cdef object element
    try:
        for i in range(n):
            element = <object>PyList_GET_ITEM(elements, i)
            if element is None:
                pass
            elif kind == MAP:
                element = call(element)
            elif kind == FILTER:
                if not call(element):
                    element = None
            elif kind == MAP_WITH_INDEX:
                element = call(index_of[i], element)
            else:
                element = call(element, draws.draw(index_of[i]))
            out.append(element)
    except Exception as error:
        failed(error, index_of[i])
        raise
    return out


def map_block(call, list elements not None, indices, failed):
    """Return ``[call(x) for x in elements]``; absent ones stay so.

    Args:
        call: Takes and returns an element.
        elements: The elements.
        indices: Theirs, int64 of shape (n,).
        failed: Called with what an element raised and its index, before that goes on.
    """
    return _block(MAP, call, elements, indices, None, failed)


def filter_block(call, list elements not None, indices, failed):
    """Return the elements, absent where ``call(x)`` is false; see `map_block`."""
    return _block(FILTER, call, elements, indices, None, failed)


def map_with_index_block(call, list elements not None, indices, failed):
    """Return ``call(i, x)`` for each element; see `map_block`."""
    return _block(MAP_WITH_INDEX, call, elements, indices, None, failed)


def random_map_block(
    call, list elements not None, indices, OpDraws draws not None, failed
):
    """Return ``call(x, rng)`` for each element, with the generator of its index.

    See `map_block`.
    """
    return _block(RANDOM_MAP, call, elements, indices, draws, failed)


def scatter(list part not None, places, list out not None):
    """Set ``out[places[i]]`` to ``part[i]``; ``places`` is int64 of shape (len(part),).

    Raises:
        IndexError: A place is not in the list.
    """
    cdef Py_ssize_t i, n = PyList_GET_SIZE(part), size = PyList_GET_SIZE(out)
    cdef const int64_t* place_of = _indices_of(places, n)
    for i in range(n):
        if not 0 <= place_of[i] < size:
            raise IndexError(f"place {place_of[i]} is not in a list of {size} elements")
        out[place_of[i]] = <object>PyList_GET_ITEM(part, i)


cdef class Step:
    """Iterates over what a call makes of each element of an iterator.

    Args:
        elements: The iterator.
        call: Takes an element; what else, and what it returns, a subclass says.

    Whoever uses it has ``_failed(error)``, which is called with what `call` raised,
    before that goes on.
    """

    cdef object _elements, _call

    def __init__(self, elements, call):
        self._elements = elements
        self._call = call

    def __iter__(self):
        return self


cdef class MapStep(Step):
    """Iterates over ``call(x)``."""

    def __next__(self):
        element = next(self._elements)
        if element is None:
            return None
        try:
            return self._call(element)
        except Exception as error:
            (<object>self)._failed(error)
            raise


cdef class Dropping:
    """What iterators that drop elements have in common: they count them in windows.

    A subclass has ``_judge(skipped)``, called after each `WINDOW` elements of which
    some were skipped.
    """

    cdef Py_ssize_t _seen, _skipped

    cdef int _count(self, bint passed) except -1:
        cdef Py_ssize_t skipped
        self._seen += 1
        self._skipped += not passed
        if self._seen == _WINDOW:
            skipped = self._skipped
            self._seen = self._skipped = 0
            if skipped:
                (<object>self)._judge(skipped)
        return 0


cdef class FilterStep(Dropping):
    """Iterates over the elements of an iterator that a predicate is true of.

    Args:
        elements: The iterator.
        call: Takes an element; its result's truth decides.  It is asked of None, too.

    ``_failed(error)`` is as that of `Step`.
    """

    cdef object _elements, _call

    def __init__(self, elements, call):
        self._elements = elements
        self._call = call

    def __iter__(self):
        return self

    def __next__(self):
        cdef bint passed
        while True:
            element = next(self._elements)
            try:
                passed = bool(self._call(element))
            except Exception as error:
                (<object>self)._failed(error)
                raise
            self._count(passed)
            if passed:
                return element


cdef class MapWithIndexStep(Step):
    """Iterates over ``call(i, x)``, where i counts the elements.

    Attributes:
        counter: Elements seen, absent ones included.
    """

    cdef public int64_t counter

    def __next__(self):
        cdef int64_t index = self.counter
        element = next(self._elements)
        self.counter = index + 1
        if element is None:
            return None
        try:
            return self._call(index, element)
        except Exception as error:
            (<object>self)._failed(error)
            raise


cdef class RandomMapStep(Step):
    """Iterates over ``call(x, rng)``, where the generator depends on a count.

    Of ``count`` processes that share the data, element n of process ``index`` draws
    from generator ``index + n * count``.

    Args:
        elements: The iterator.
        call: Takes an element and a generator, returns an element.
        draws: Gives the generators.

    A subclass has ``_processes()``, called at the first element, which returns
    ``(index, count)``.

    Attributes:
        counter: Elements seen, absent ones included.
    """

    cdef OpDraws _draws
    cdef public int64_t counter
    cdef int64_t _first, _stride

    def __init__(self, elements, call, OpDraws draws not None):
        Step.__init__(self, elements, call)
        self._draws = draws

    def __next__(self):
        cdef int64_t count = self.counter
        element = next(self._elements)
        self.counter = count + 1
        if element is None:
            return None
        if self._stride == 0:
            self._first, self._stride = (<object>self)._processes()
        generator = self._draws.draw(self._first + count * self._stride)
        try:
            return self._call(element, generator)
        except Exception as error:
            (<object>self)._failed(error)
            raise


cdef class MixStep:
    """Takes from several iterators in turn; ends with the one whose turn it is.

    A subclass has ``_look_up_turns(first)``: it returns a list of which iterator's turn
    it is at `first`, `first` + 1, ...

    Args:
        parts: The iterators.

    Attributes:
        index: Turns taken.
        stopped: Whether an iterator ended when it was its turn.
    """

    cdef list _parts, _turns
    cdef int64_t _turns_from
    cdef public int64_t index
    cdef public bint stopped

    def __init__(self, parts):
        self._parts = list(parts)
        self._turns = []

    def __iter__(self):
        return self

    def __next__(self):
        cdef int64_t place = self.index - self._turns_from
        cdef Py_ssize_t number
        if self.stopped:
            raise StopIteration
        if not 0 <= place < PyList_GET_SIZE(self._turns):
            self._turns = (<object>self)._look_up_turns(self.index)
            self._turns_from = self.index
            place = 0
        number = self._turns[place]
        self.index += 1
        try:
            element = next(self._parts[number], _END)
        except Exception as error:
            error.add_note(
                f"Exception caught while processing dataset @ input_index={number}"
            )
            raise
        if element is _END:
            self.stopped = True
            raise StopIteration
        return element


cdef class Feed(Dropping):
    """Iterates over elements that come in blocks.

    A subclass has ``_refill(first)``: it returns a list of elements from number `first`
    on, its own no more, empty at the end.  Where it raises what an element raises, it
    counts that one as given.

    Args:
        keep_absent: Whether None is an element like others; else it is skipped.

    Attributes:
        given: Elements given out, absent ones included.
    """

    cdef list _block
    cdef Py_ssize_t _at
    cdef bint _keep_absent
    cdef public int64_t given

    def __init__(self, bint keep_absent):
        self._keep_absent = keep_absent
        self._block = []

    def __iter__(self):
        return self

    def __next__(self):
        cdef object element
        while True:
            if self._at == PyList_GET_SIZE(self._block):
                self._more()
            element = self._taken(self._at)
            self._at += 1
            self.given += 1
            if self._keep_absent:
                return element
            self._count(element is not None)
            if element is not None:
                return element

    cdef object _taken(self, Py_ssize_t at):
        """An element of the block, which keeps it no longer."""
        element = <object>PyList_GET_ITEM(self._block, at)
        self._block[at] = None
        return element

    cdef int _more(self) except -1:
        self._block = []
        self._at = 0
        self._block = (<object>self)._refill(self.given)
        if not self._block:
            raise StopIteration
        return 0

    def ahead(self):
        """Elements that were fetched and not yet given out."""
        return PyList_GET_SIZE(self._block) - self._at

    def seek(self, int64_t given):
        """Go on after `given` elements."""
        self._block = []
        self._at = 0
        self.given = given


def take(elements, Py_ssize_t count):
    """Return up to `count` elements of an iterator, fewer only at its end."""
    cdef list out = []
    cdef Py_ssize_t i
    for i in range(count):
        element = next(elements, _END)
        if element is _END:
            break
        out.append(element)
    return out
