# cython: boundscheck=False, wraparound=False
"""Concatenates elements and cuts them into rows."""
cimport cython
cimport numpy as cnp
from cpython.list cimport PyList_GET_ITEM
from cpython.sequence cimport PySequence_GetItem
from libc.stdint cimport int32_t, int64_t
from libcpp.memory cimport unique_ptr
from libcpp.vector cimport vector

from gristmill._hot.cancellation cimport cancelled_count, check_thread
from gristmill._hot.row_matrix cimport (
    RowMatrix, add_note, clear_cells, has_cells_of, length_of, make_matrix, matrix_of,
    write_cells,
)

import collections.abc

import numpy as np

cnp.import_array()

cdef object _END = object()
cdef object _Mapping = collections.abc.Mapping

cdef extern from "core/batches/concat_split.hpp" namespace "gristmill" nogil:
    cdef cppclass CellRange:
        int64_t begin
        int64_t end
        int64_t size()

    cdef cppclass FillerFeature "gristmill::RowFiller::Feature":
        int64_t length
        bint whole

    cdef enum Taken "gristmill::RowFiller::Taken":
        kAll "gristmill::RowFiller::Taken::kAll"
        kPart "gristmill::RowFiller::Taken::kPart"
        kNothing "gristmill::RowFiller::Taken::kNothing"

    cdef cppclass RowFiller:
        RowFiller(vector[FillerFeature] features) except +
        bint is_full_row(const vector[CellRange]& element)
        Taken plan(const vector[CellRange]& element, vector[CellRange]& taken)
        void commit(const vector[CellRange]& taken)
        Py_ssize_t whole_misfit(const vector[CellRange]& element)
        void clear()
        int64_t used(size_t feature)

cdef enum:
    # The limits of a block; it has at least one row.  A returned row keeps its block.
    _BLOCK_BYTES = 1 << 16
    _BLOCK_ROWS = 32


@cython.final
cdef class _RowBlock:
    """The arrays of several rows, which are returned one by one."""

    cdef list values  # For each feature an array of shape ``(row_count, length, *S)``.
    cdef list columns  # The arrays in the order of the keys of a returned row.
    cdef list bos  # For each feature a cell with its BOS token, or None.
    cdef vector[RowMatrix] matrices  # Views of the arrays, by feature.
    cdef Py_ssize_t row_count, used_rows  # `Splitter._write` counts `used_rows`.

    def __init__(self, layout, list leaves):
        cdef Py_ssize_t nbytes = 0
        cdef cnp.ndarray matrix
        single_rows = [
            make_matrix((1, length), leaf, None)
            for length, leaf in zip(layout.lengths, leaves)
        ]
        for matrix in single_rows:  # 8: the int32 segment id and position of a cell.
            nbytes += cnp.PyArray_NBYTES(matrix) + 8 * cnp.PyArray_DIM(matrix, 1)
        self.row_count = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // max(nbytes, 1)))
        self.values = [
            np.zeros((self.row_count, *array.shape[1:]), array.dtype)
            for array in single_rows
        ]
        self.bos = [
            np.full(array.shape[2:], layout.bos_token, array.dtype)[()] if bos else None
            for array, bos in zip(single_rows, layout.bos)
        ]
        numberings = [
            None if whole else np.zeros((2, self.row_count, length), np.int32)
            for length, whole in zip(layout.lengths, layout.whole)
        ]
        segment_ids = [None if pair is None else pair[0] for pair in numberings]
        positions = [None if pair is None else pair[1] for pair in numberings]
        for i in range(len(leaves)):
            self.matrices.push_back(
                matrix_of(self.values[i], segment_ids[i], positions[i])
            )
        arrays = [*self.values, *segment_ids, *positions]
        self.columns = [arrays[column] for column in layout.columns]

    cdef bint can_hold(self, list leaves):
        """Return whether a row is unused, and its cells match those of the leaves."""
        if self.used_rows == self.row_count:
            return False
        for leaf, values in zip(leaves, self.values):
            if not has_cells_of(leaf, values):
                return False
        return True

    cdef dict row(self, Py_ssize_t index, tuple keys):
        """Return a row, whose arrays are views of the block."""
        cdef dict row = {}
        for key, column in zip(keys, self.columns):
            row[key] = PySequence_GetItem(column, index)
        return row


cdef class Splitter:
    """Concatenates elements and cuts them into rows."""

    cdef object _layout
    cdef tuple _keys, _column_keys
    cdef bint _split_full_rows
    # The row being filled; and a row of one element, see `_pack_full_row`.
    cdef unique_ptr[RowFiller] _filler, _single_row_filler
    # The last feature that ended a row because it is never cut.
    cdef readonly object limited_by
    # The leaves of the element that begins the next row, or None.
    cdef list _remainder
    cdef object _remainder_state  # The parent's state before that element.
    cdef bint _is_remainder_cut  # True if rows already have some of its cells.
    # For each feature of the current element: its cells that are not in a row yet, and
    # those of them that go into the row being filled.
    cdef vector[CellRange] _ranges, _planned
    # The block that contains the row being filled; None before its first element.
    cdef _RowBlock _row_block
    cdef Py_ssize_t _row_index
    cdef int32_t _segment  # The number of elements in the row being filled.
    cdef _RowBlock _next_block  # The block of the next row.
    cdef list _full_rows  # Complete rows that `fill` has not returned yet.

    def __init__(self, layout):
        cdef vector[FillerFeature] features
        cdef FillerFeature feature
        self._layout = layout
        self._keys = layout.keys
        self._column_keys = layout.column_keys
        self._split_full_rows = layout.split_full_rows
        for length, whole in zip(layout.lengths, layout.whole):
            feature.length = length
            feature.whole = whole
            features.push_back(feature)
        self._filler.reset(new RowFiller(features))
        self._single_row_filler.reset(new RowFiller(features))
        self._ranges.resize(features.size())
        self._planned.resize(features.size())
        self.clear()

    def clear(self):
        """Discard all elements."""
        self._remainder = None
        self._remainder_state = None
        self._is_remainder_cut = False
        self._full_rows = []
        self._begin_row()

    def remainder(self):
        """Return ``(state, ranges)`` of the element that begins the next row, or None.

        ``state`` is the iterator's state before that element.  ``ranges`` are the cells
        of each feature that are not in a row yet, or None for the whole element.
        """
        cdef CellRange cells
        if self._remainder is None:
            return None
        if not self._is_remainder_cut:
            return self._remainder_state, None
        ranges = [(cells.begin, cells.end) for cells in self._ranges]
        return self._remainder_state, ranges

    def restore(self, element, state, list ranges not None):
        """Make the remainder of an element begin the next row.

        `ranges` are the remaining cells of each feature; None stands for all its cells.
        """
        cdef list leaves = self._leaves_of(element)
        for i, cells in zip(range(len(leaves)), ranges, strict=True):
            if cells is None:
                continue
            begin, end = cells
            size = self._ranges[i].end
            if not 0 <= begin <= end <= size:
                raise ValueError(
                    f"The cells of feature {self._keys[i]!r} that a state has left over"
                    f" must lie within 0 to {size}, the element's cells, got {begin} to"
                    f" {end}. The state belongs to another pipeline, or the data has"
                    " changed."
                )
            self._ranges[i].begin = begin
            self._ranges[i].end = end
        self._remainder = leaves
        self._remainder_state = state
        self._is_remainder_cut = True

    def fill(self, parent):
        """Take elements from an iterator until a row is complete or the iterator ends.

        Returns a list of the rows, and whether the iterator has ended.  Rows of single
        elements come after the other row, if there is one.  If the iterator raises, or
        an element does not match the layout, that element is dropped, and the next call
        continues after it.
        """
        cdef bint ended = False
        cdef list rows, leaves
        get_state = parent.get_state
        while self._remainder is None or self._pack_remainder():
            self._remainder = None
            if cancelled_count:
                check_thread()
            state = get_state()
            element = next(parent, _END)
            if element is _END:
                ended = True
                break
            leaves = self._leaves_of(element)
            is_full_row = self._filler.get().is_full_row(self._ranges)
            if is_full_row and not self._split_full_rows:
                self._pack_full_row(leaves)
                continue
            self._remainder = leaves
            self._remainder_state = state
            self._is_remainder_cut = False
        rows = self._full_rows
        if self._segment:
            rows.insert(0, self._row_block.row(self._row_index, self._column_keys))
        self._full_rows = []
        self._begin_row()
        return rows, ended

    cdef int _begin_row(self) except -1:
        self._filler.get().clear()
        self._segment = 0
        self._row_block = None
        return 0

    cdef int _pack_full_row(self, list leaves) except -1:
        """Make a row from one element, without changing the row being filled."""
        cdef _RowBlock block = self._row_block
        cdef Py_ssize_t row_index = self._row_index
        cdef int32_t segment = self._segment
        self._filler.swap(self._single_row_filler)
        self._begin_row()
        try:
            self._write(leaves, self._ranges)
            self._full_rows.append(
                self._row_block.row(self._row_index, self._column_keys)
            )
        finally:
            self._filler.swap(self._single_row_filler)
            self._row_block = block
            self._row_index = row_index
            self._segment = segment
        return 0

    cdef bint _pack_remainder(self) except -1:
        """Append the cells of the remainder that fit to the row.

        Returns whether all of them fit.
        """
        cdef Py_ssize_t i, n = len(self._keys)
        cdef RowFiller* filler = self._filler.get()
        cdef Taken taken
        for i in range(n):
            # Each part of an element repeats its scalars.
            if cnp.PyArray_NDIM(<cnp.ndarray>PyList_GET_ITEM(self._remainder, i)) == 0:
                self._ranges[i].begin = 0
                self._ranges[i].end = 1
        taken = filler.plan(self._ranges, self._planned)
        if taken == kNothing:
            self._note_limit()
            return False
        try:
            self._write(self._remainder, self._planned)
        except BaseException:
            self._remainder = None
            raise
        if taken == kAll:
            return True
        self._is_remainder_cut = True
        for i in range(n):
            if not self._layout.whole[i]:
                self._ranges[i].begin = self._planned[i].end
        return False

    cdef int _note_limit(self) except -1:
        """Record which uncuttable feature did not fit into the row.

        Drops the remainder, and raises ValueError, if it does not fit into any row.
        """
        cdef Py_ssize_t i = self._filler.get().whole_misfit(self._ranges)
        if i < 0:
            return 0
        self.limited_by = self._keys[i]
        if self._segment == 0:
            self._remainder = None
            raise self._layout.whole_error(i, self._ranges[i].size())
        return 0

    cdef list _leaves_of(self, object element):
        """Return the features of an element, and set their ranges to all cells."""
        cdef list leaves = []
        if not isinstance(element, (dict, _Mapping)):
            raise ValueError(
                "Parent elements must be unnested dictionaries but got"
                f" {type(element).__name__}. Convert them in a map before packing."
            )
        if len(element) != len(self._keys):
            raise self._layout.structure_error(element)
        for key in self._keys:
            if key not in element:
                raise self._layout.structure_error(element)
            leaf = element[key]
            leaves.append(leaf if cnp.PyArray_CheckExact(leaf) else np.asarray(leaf))
        for i in range(len(leaves)):
            self._ranges[i].begin = 0
            self._ranges[i].end = length_of(leaves[i], None)
        return leaves

    cdef int _write(self, list leaves, const vector[CellRange]& taken) except -1:
        """Append parts of all features to the row; change nothing if one fails."""
        cdef Py_ssize_t i, done, n = len(leaves)
        cdef RowFiller* filler = self._filler.get()
        cdef int64_t used
        if self._segment == 0:
            if self._next_block is None or not self._next_block.can_hold(leaves):
                self._next_block = _RowBlock(self._layout, leaves)
            self._row_block = self._next_block
            self._row_index = self._next_block.used_rows
            self._next_block.used_rows += 1
        try:
            for i in range(n):
                self._write_one(i, leaves[i], taken[i])
        except BaseException as error:
            for done in range(i + 1):
                used = filler.used(done)
                clear_cells(self._row_block.values[done][self._row_index, used:], None)
            add_note(error, f"[{self._keys[i]!r}]", self._row_block.values[i])
            raise
        self._segment += 1
        for i in range(n):
            used = filler.used(i)
            self._row_block.matrices[i].number(
                self._row_index, used, taken[i].size(), self._segment
            )
        filler.commit(taken)
        return 0

    cdef int _write_one(self, Py_ssize_t i, object leaf, CellRange taken) except -1:
        cdef cnp.ndarray values = <cnp.ndarray>PyList_GET_ITEM(
            self._row_block.values, i
        )
        cdef RowMatrix* matrix = &self._row_block.matrices[i]
        cdef int64_t used = self._filler.get().used(i)
        write_cells(
            matrix, values, self._row_index, used, leaf, taken.begin, taken.size()
        )
        bos = self._row_block.bos[i]
        if bos is not None and used < <int64_t>matrix.length:
            # Like Grain, write the token even if the segment has no cells.
            values[self._row_index, used] = bos
        return 0
