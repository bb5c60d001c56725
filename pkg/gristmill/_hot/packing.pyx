# cython: boundscheck=False, wraparound=False
"""Packs elements into the rows of one batch after another."""
cimport numpy as cnp
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItemWithError
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from cpython.sequence cimport PySequence_GetItem
from libc.stdint cimport int32_t, int64_t
from libcpp.memory cimport unique_ptr
from libcpp.vector cimport vector

from gristmill._hot.calls cimport (
    PyErr_Occurred, raise_pending, take_ownership, try_next,
)
from gristmill._hot.cancellation cimport cancelled_count, check_thread
from gristmill._hot.row_matrix cimport (
    RowMatrix, add_note, clear_cells, length_of, make_matrix, matrix_of, write_cells,
)

import numpy as np

cnp.import_array()

cdef extern from "core/batches/packing.hpp" namespace "gristmill" nogil:
    cdef enum class Fit:
        kFirst
        kBest

    cdef cppclass PlacerFeature "gristmill::RowPlacer::Feature":
        int64_t length
        int64_t alignment

    cdef cppclass RowPlacer:
        RowPlacer(
            Fit fit, size_t rows, vector[PlacerFeature] features, int64_t max_sequences
        ) except +
        Py_ssize_t find(const vector[int64_t]& lengths)
        void place(size_t row, const vector[int64_t]& lengths)
        void clear()
        int64_t next_cell(size_t row, size_t feature)
        int64_t sequences(size_t row)
        size_t rows_in_use()

    int64_t kUnlimited "gristmill::RowPlacer::kUnlimited"


cdef object _item_of(object element, object key):
    """Return ``element[key]``, or raise KeyError with advice."""
    cdef PyObject* item
    if PyDict_CheckExact(element):
        item = PyDict_GetItemWithError(element, key)
        if item is not NULL:
            return <object>item
    try:
        return element[key]
    except KeyError:
        raise KeyError(
            f"Elements must have the key {key!r} of length_struct or meta_features,"
            f" got one with only {list(element)!r}. Add the key in a map before"
            " packing, or remove it from length_struct and meta_features."
        ) from None


cdef class PackedRows:
    """The rows of one complete batch."""

    cdef object _layout
    cdef Py_ssize_t _used_rows
    # For each feature an array of shape ``(rows, length, *S)``.
    cdef readonly list values
    # For each feature an int32 array of shape ``(rows, length)``, or None.
    cdef readonly list segment_ids, positions
    cdef list _columns  # The arrays and lists in the order of a row's leaves.
    cdef tuple _keys  # The keys of `_columns` if rows are plain dicts; else None.

    def __init__(
        self, layout, Py_ssize_t used_rows, list values, list segment_ids,
        list positions, list metas,
    ):
        cdef list columns = [*values, *segment_ids, *positions, *metas]
        self._layout = layout
        self._used_rows = used_rows
        self.values = values
        self.segment_ids = segment_ids
        self.positions = positions
        self._columns = [columns[number] for number in layout.columns]
        self._keys = layout.column_keys

    def __len__(self):
        """Return the number of rows that contain an element; these are the first."""
        return self._used_rows

    def row(self, Py_ssize_t index):
        """Return one row, whose arrays are views."""
        cdef Py_ssize_t i = 0
        cdef dict row
        if self._keys is None:
            return self._layout.assemble(
                [PySequence_GetItem(column, index) for column in self._columns]
            )
        row = {}
        for key in self._keys:
            row[key] = PySequence_GetItem(
                <object>PyList_GET_ITEM(self._columns, i), index
            )
            i += 1
        return row


cdef class Packer:
    """Packs elements into the rows of one batch after another."""

    cdef object _layout
    cdef tuple _keys, _meta_keys, _names  # See `PackLayout`; `_keys` may be None.
    cdef unique_ptr[RowPlacer] _placer
    cdef vector[int64_t] _capacities  # The cells of each feature in a row.
    cdef vector[int64_t] _lengths  # The cells of each feature in the current element.
    cdef vector[RowMatrix] _matrices  # Views of the arrays, by feature.
    # The arrays of the batch; `_values` is None before its first element.
    cdef list _values, _segment_ids, _positions
    cdef list _metas  # For each meta key a list of values for each row.

    def __init__(self, layout):
        cdef vector[PlacerFeature] features
        cdef PlacerFeature feature
        cdef int64_t limit = layout.max_sequences or kUnlimited
        self._layout = layout
        self._keys = layout.keys
        self._meta_keys = layout.meta_keys
        self._names = layout.names
        for length, alignment in zip(layout.lengths, layout.alignments):
            feature.length = length
            feature.alignment = alignment
            features.push_back(feature)
            self._capacities.push_back(feature.length)
        self._lengths.resize(features.size())
        self._placer.reset(
            new RowPlacer(
                Fit.kBest if layout.best_fit else Fit.kFirst, layout.rows, features,
                limit,
            )
        )

    def __len__(self):
        """Return the number of rows of the batch that contain an element."""
        return self._placer.get().rows_in_use()

    def add(self, element):
        """Pack an element and return True; return False if no row has room.

        The first element determines the dtypes and trailing shapes of the batch.  If
        this returns False or raises, the batch is unchanged.
        """
        return self._add(element)

    cdef bint _add(self, object element) except -1:
        cdef list leaves
        cdef list metas = None
        cdef Py_ssize_t i, row
        cdef bint too_long = False
        if self._keys is None:
            leaves = self._layout.leaves_of(element)
        else:
            leaves = [_item_of(element, key) for key in self._keys]
        if self._meta_keys:
            metas = [_item_of(element, key) for key in self._meta_keys]
        for i in range(len(leaves)):
            self._lengths[i] = length_of(
                <object>PyList_GET_ITEM(leaves, i), self._names[i]
            )
            too_long |= self._lengths[i] > self._capacities[i]
        if too_long:
            raise self._layout.too_long_error(self._lengths)
        row = self._placer.get().find(self._lengths)  # -1 if no row has room.
        if row < 0:
            return False
        if self._values is None:
            self._allocate(leaves)
        self._write(row, leaves)
        if metas is not None:
            for i in range(len(metas)):
                self._metas[i][row].append(metas[i])
        return True

    def finish(self):
        """Return the batch and begin another one.

        REQUIRES: the batch contains an element.
        """
        packed = PackedRows(
            self._layout, len(self), self._values, self._segment_ids, self._positions,
            self._metas,
        )
        self._placer.get().clear()
        self._values = None
        return packed

    def fill(self, parent):
        """Pack elements of an iterator until one does not fit or the iterator ends.

        Returns ``(state, (element,))`` for an element that does not fit, and
        ``(state, None)`` at the end; ``state`` is the iterator's state before that.  If
        the iterator or `add` raises, the element is dropped, and the next call
        continues after it.
        """
        cdef PyObject* reference
        get_state = parent.get_state
        while True:
            if cancelled_count:
                check_thread()
            state = get_state()
            reference = try_next(parent)
            if reference is NULL:
                if PyErr_Occurred() is not NULL:
                    raise_pending()
                return state, None
            element = take_ownership(reference)
            if not self._add(element):
                return state, (element,)

    cdef int _allocate(self, list leaves) except -1:
        """Make the arrays of a batch whose first element has these leaves."""
        cdef list values = []
        cdef Py_ssize_t i
        layout = self._layout
        self._segment_ids = []
        self._positions = []
        self._matrices.clear()
        for i in range(len(leaves)):
            shape = (layout.rows, layout.lengths[i])
            values.append(make_matrix(shape, leaves[i], layout.paddings[i]))
            numbered = layout.numbered[i]
            self._segment_ids.append(np.zeros(shape, np.int32) if numbered else None)
            self._positions.append(np.zeros(shape, np.int32) if numbered else None)
            self._matrices.push_back(
                matrix_of(values[i], self._segment_ids[i], self._positions[i])
            )
        self._metas = [[[] for _ in range(layout.rows)] for _ in self._meta_keys]
        self._values = values
        return 0

    cdef int _write(self, Py_ssize_t row, list leaves) except -1:
        """Append an element's leaves to a row; change nothing if one fails."""
        cdef RowPlacer* placer = self._placer.get()
        cdef Py_ssize_t i, done, n = len(leaves)
        cdef int64_t begin
        cdef int32_t segment = <int32_t>placer.sequences(row) + 1
        try:
            for i in range(n):
                write_cells(
                    &self._matrices[i], <cnp.ndarray>PyList_GET_ITEM(self._values, i),
                    row, placer.next_cell(row, i), <object>PyList_GET_ITEM(leaves, i),
                    0, self._lengths[i],
                )
        except BaseException as error:
            for done in range(i + 1):
                begin = placer.next_cell(row, done)
                cells = self._values[done][row, begin:begin + self._lengths[done]]
                clear_cells(cells, self._layout.paddings[done])
            add_note(error, self._names[i], self._values[i])
            raise
        for i in range(n):
            self._matrices[i].number(
                row, placer.next_cell(row, i), self._lengths[i], segment
            )
        placer.place(row, self._lengths)
        return 0
