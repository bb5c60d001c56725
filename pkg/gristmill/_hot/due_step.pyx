# cython: boundscheck=False, wraparound=False, cdivision=True
"""Takes elements of a mixture from the iterator that is due first.

`gristmill._dataset.nodes.mix_shares` states the rule.
"""
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from gristmill._hot.calls cimport (
    PyErr_Occurred, raise_pending, take_ownership, try_next,
)
from gristmill._hot.cancellation cimport cancelled_count, check_thread

import numpy as np

cdef object _ARRAY = np.ndarray


cdef class DueStep:
    """Takes elements from several iterators, and counts what each delivers.

    Args:
        parts: The iterators.
        count_tokens: A function that counts the tokens of an element; None if tokens
            are not counted.
        field: The field of a dict that has an element's tokens; None: the element is
            an array of tokens.  `count_tokens` is called for all other elements.
        is_plain: Whether arrays and lists may be counted without `count_tokens`.
        by_tokens: Whether weights are shares of tokens.
        progress_by_tokens: Whether `progress` counts tokens.
        drops: Whether to continue without iterators that have ended.
        max_empty: The most elements in a row without tokens, if `by_tokens`.
        name_of: A function that returns the name of an iterator, given its number.

    Attributes:
        index: The number of elements.
        progress: The number of elements or tokens.
        stopped: Whether there are no more elements.
        is_counting: Whether the last call failed when it counted tokens.
    """

    cdef list _parts
    cdef object _count_tokens, _field, _name_of
    cdef bint _is_plain, _by_tokens, _progress_by_tokens, _drops
    cdef vector[int64_t] _elements, _tokens, _bases
    cdef vector[double] _weights, _leads, _dues
    cdef vector[char] _ended
    cdef public int64_t index, progress
    cdef public bint stopped
    cdef readonly bint is_counting
    cdef int64_t _max_empty, _empty_count

    def __init__(
        self,
        parts,
        count_tokens,
        field,
        is_plain,
        by_tokens,
        progress_by_tokens,
        drops,
        max_empty,
        name_of,
    ):
        cdef Py_ssize_t count
        self._parts = list(parts)
        self._count_tokens = count_tokens
        self._field = field
        self._is_plain = is_plain
        self._by_tokens = by_tokens
        self._progress_by_tokens = progress_by_tokens
        self._drops = drops
        self._max_empty = max_empty
        self._name_of = name_of
        count = len(self._parts)
        self.set_counts([0] * count, [0] * count, [False] * count)
        self.set_shares([1.0] * count, [0.0] * count, [0] * count)

    @property
    def elements(self):
        """The number of elements of each iterator."""
        return list(self._elements)

    @property
    def tokens(self):
        """The number of tokens of each iterator; 0 if they are not counted."""
        return list(self._tokens)

    @property
    def ended(self):
        """For each iterator, True if it had no element at its turn."""
        return [bool(each) for each in self._ended]

    def set_counts(self, elements, tokens, ended):
        """Set what each iterator has delivered.  `set_shares` must follow."""
        self._elements = elements
        self._tokens = tokens
        self._ended = [1 if each else 0 for each in ended]
        self._empty_count = 0

    def set_shares(self, weights, leads, bases):
        """Set the weights, see `mix_shares.Shares`."""
        cdef Py_ssize_t number
        self._weights = weights
        self._leads = leads
        self._bases = bases
        self._dues.resize(self._weights.size())
        for number in range(<Py_ssize_t>self._weights.size()):
            self._update_due(number)

    def take(self):
        """Return the next element.

        Raises:
            StopIteration: An iterator has ended at its turn, or all have if `drops`.
            ValueError: An iterator has returned too many elements without tokens.
        """
        cdef Py_ssize_t number, first
        cdef double due
        cdef PyObject* element
        self.is_counting = False
        while not self.stopped:
            first, due = -1, INFINITY
            for number in range(<Py_ssize_t>self._dues.size()):
                if self._dues[number] < due:
                    first, due = number, self._dues[number]
            if first < 0:
                break
            if self._empty_count >= self._max_empty:
                raise ValueError(
                    f"The last {self._empty_count} elements of {self._name_of(first)}"
                    " have no tokens, so it does not reach its share of the tokens."
                    " Leave out its empty elements."
                )
            element = try_next(self._parts[first])
            if element is not NULL:
                taken = take_ownership(element)
                self._count(first, taken)
                return taken
            if PyErr_Occurred() is not NULL:
                self._fail(first)
            self._ended[first] = 1
            self._empty_count = 0
            self._dues[first] = INFINITY
            if not self._drops:
                break
            if cancelled_count:
                check_thread()
        self.stopped = True
        raise StopIteration

    cdef int _count(self, Py_ssize_t number, object element) except -1:
        """Count an element, and compute when its iterator is due next."""
        cdef int64_t tokens = 0
        if self._count_tokens is not None and element is not None:
            self.is_counting = True
            tokens = self._tokens_of(element)
            self.is_counting = False
        self.index += 1
        self._elements[number] += 1
        self._tokens[number] += tokens
        self.progress += tokens if self._progress_by_tokens else 1
        if self._by_tokens:
            self._empty_count = 0 if tokens else self._empty_count + 1
        self._update_due(number)
        return 0

    cdef int64_t _tokens_of(self, object element) except -1:
        cdef object tokens = element
        if self._is_plain:
            if self._field is not None:
                tokens = element.get(self._field) if type(element) is dict else None
            if PyList_CheckExact(tokens):
                return PyList_GET_SIZE(tokens)
            if type(tokens) is _ARRAY and tokens.ndim:
                return len(tokens)
        return self._count_tokens(element)

    cdef void _update_due(self, Py_ssize_t number) noexcept:
        cdef int64_t delivered = self._elements[number]
        if self._by_tokens:
            delivered = self._tokens[number]
        if self._ended[number] or self._weights[number] == 0:
            self._dues[number] = INFINITY
            return
        self._dues[number] = (
            self._leads[number] + <double>(delivered - self._bases[number])
        ) / self._weights[number]

    cdef int _fail(self, Py_ssize_t number) except -1:
        """Raise the pending exception of an iterator."""
        try:
            raise_pending()
        except Exception as error:
            error.add_note(
                f"Exception caught while processing dataset @ input_index={number}"
            )
            raise
