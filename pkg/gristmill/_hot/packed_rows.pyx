# cython: boundscheck=False, wraparound=False
"""Makes rows of spans of documents, as a plan lists them."""
cimport numpy as cnp
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset
from libcpp.vector cimport vector

from gristmill._hot.cancellation cimport cancelled_count, check_thread
from gristmill._hot.row_matrix cimport (
    RowMatrix, add_note, has_cells_of, length_of, make_matrix, matrix_of, write_cells,
)

import numpy as np

cnp.import_array()

# Kinds of dtype of NumPy's numbers and bools, which stacks do not convert.
cdef str NUMBER_KINDS = "biufc"


cdef inline bint _is_scalar(object leaf):
    if cnp.PyArray_CheckExact(leaf):
        return cnp.PyArray_NDIM(<cnp.ndarray>leaf) == 0
    return np.ndim(leaf) == 0


cdef inline bint _is_stackable(object leaf, cnp.ndarray values):
    """Return whether a batch of rows has the dtype of a leaf of one."""
    return (
        cnp.PyArray_CheckExact(leaf)
        and has_cells_of(<cnp.ndarray>leaf, values)
        and values.dtype.isnative
        and values.dtype.kind in NUMBER_KINDS
    )


cdef class RowWriter:
    """Makes rows of spans of documents."""

    cdef object _layout
    cdef tuple _keys  # The keys of the features if documents are dicts; else None.
    # For each feature, -1 if it has the spans of the first one; otherwise its number
    # among the features with lengths of their own.
    cdef vector[Py_ssize_t] _extras
    cdef Py_ssize_t _num_extras
    cdef Py_ssize_t _length  # Cells per row of the first feature.
    cdef Py_ssize_t _boundaries  # Entries of a row's ``cu_seqlens``; 0 for none.

    def __init__(self, layout, Py_ssize_t boundaries, list extras not None):
        self._layout = layout
        self._keys = layout.keys
        self._extras = extras
        self._num_extras = max(extras) + 1
        self._length = layout.lengths[extras.index(-1)]
        self._boundaries = boundaries

    def __reduce__(self):
        return RowWriter, (self._layout, self._boundaries, list(self._extras))

    def write(
        self, list documents not None, const int64_t[::1] offsets,
        const int64_t[::1] begins, const int64_t[::1] ends,
        const int64_t[::1] lengths, object extra_lengths, mismatch,
    ):
        """Return the rows that are made of some spans.

        Row r has the spans ``offsets[r]:offsets[r + 1]``.  Span s are the cells from
        ``begins[s]`` to ``ends[s]`` of ``documents[s]``, whose length should be
        ``lengths[s]``.  Its extra feature e, whose length should be
        ``extra_lengths[e, s]``, is whole if ``begins[s]`` is 0, and otherwise absent;
        `extra_lengths` is None if there are none.
        For other lengths, this raises ``mismatch(s, feature, expected, length)``.

        REQUIRES: the spans of a row fit into it, and each row has one.
        """
        cdef list rows = []
        cdef Py_ssize_t row
        for row in range(offsets.shape[0] - 1):
            rows.append(
                self._rows(
                    documents, offsets[row:row + 2], begins, ends, lengths,
                    extra_lengths, mismatch, False,
                )
            )
        return rows

    def stack(
        self, list documents not None, const int64_t[::1] offsets,
        const int64_t[::1] begins, const int64_t[::1] ends,
        const int64_t[::1] lengths, object extra_lengths, mismatch,
    ):
        """Return a batch of the rows that `write` returns.

        Returns None if it must be made of rows, because documents have several dtypes,
        or do not have only arrays of numbers.
        """
        return self._rows(
            documents, offsets, begins, ends, lengths, extra_lengths, mismatch, True
        )

    cdef list _leaves_of(self, object document):
        if self._keys is None:
            return self._layout.leaves_of(document)
        try:
            return [document[key] for key in self._keys]
        except (LookupError, TypeError):
            found = list(document) if isinstance(document, dict) else type(document)
            raise KeyError(
                f"Elements must be dicts with the keys {list(self._keys)!r} of"
                f" length_struct, got {found!r}. Add the missing keys in a map before"
                " packing, or remove them from length_struct."
            ) from None

    cdef object _rows(
        self, list documents, const int64_t[::1] offsets,
        const int64_t[::1] begins, const int64_t[::1] ends,
        const int64_t[::1] lengths, const int64_t[:, ::1] extra_lengths, mismatch,
        bint stacked,
    ):
        """Return a batch of rows, or if not `stacked`, the only row."""
        cdef list leaves, values = [], segment_ids = [], positions = []
        cdef vector[RowMatrix] matrices
        cdef Py_ssize_t row, rows = offsets.shape[0] - 1
        cdef cnp.ndarray mask = np.zeros((rows, self._length), np.bool_)
        cdef char* mask_bytes = <char*>cnp.PyArray_BYTES(mask)
        cdef vector[int64_t] used  # Cells of each extra feature.
        cdef Py_ssize_t i, s, extra, at
        cdef int64_t tokens, start, begin, count, length, expected
        layout = self._layout
        for row in range(rows):
            if cancelled_count:
                check_thread()
            at = 0
            used.assign(self._num_extras, 0)
            for s in range(offsets[row], offsets[row + 1]):
                leaves = self._leaves_of(documents[s])
                tokens = ends[s] - begins[s]
                for i in range(len(leaves)):
                    leaf = <object>PyList_GET_ITEM(leaves, i)
                    length = self._length_of(leaf, i)
                    extra = self._extras[i]
                    if extra < 0:
                        start, begin, count = at, begins[s], tokens
                        expected = lengths[s]
                    else:
                        expected = extra_lengths[extra, s]
                        count = expected if begins[s] == 0 else 0
                        start, begin = used[extra], 0
                        used[extra] += count
                    if length != expected:
                        raise mismatch(s, layout.names[i], expected, length)
                    if s == offsets[0]:
                        example = (
                            leaf if length
                            else self._example(documents[s:offsets[rows]], i)
                        )
                        values.append(self._values(rows, i, example))
                        numbers = self._numbers(rows, i)
                        segment_ids.append(numbers[0])
                        positions.append(numbers[1])
                        matrices.push_back(
                            matrix_of(values[i], segment_ids[i], positions[i])
                        )
                    if count == 0:
                        continue
                    if stacked and not _is_stackable(leaf, values[i]):
                        return None
                    try:
                        write_cells(
                            &matrices[i], <cnp.ndarray>PyList_GET_ITEM(values, i), row,
                            start, leaf, begin, count,
                        )
                    except BaseException as error:
                        add_note(error, layout.names[i], values[i])
                        raise
                    matrices[i].number(
                        row, start, count, <int32_t>(s - offsets[row] + 1)
                    )
                if tokens > 1:
                    memset(mask_bytes + row * self._length + at + 1, 1, tokens - 1)
                at += tokens
        columns = [*values, *segment_ids, *positions, mask]
        if not stacked:
            columns = [None if each is None else each[0] for each in columns]
        if self._boundaries:
            columns += self._boundaries_of_rows(begins, ends, offsets, stacked)
        return self._assemble(columns)

    cdef object _assemble(self, list columns):
        """Return the element that has these arrays."""
        layout = self._layout
        columns = [columns[column] for column in layout.columns]
        if layout.column_keys is None:
            return layout.assemble(columns)
        return dict(zip(layout.column_keys, columns))

    cdef int64_t _length_of(self, object leaf, Py_ssize_t i) except -1:
        """Return the number of cells of feature i of a document."""
        cdef int64_t length = length_of(leaf, self._layout.names[i])
        if _is_scalar(leaf):
            raise ValueError(
                f"{self._layout.names[i]} of a document must be an array, got {leaf!r}."
                " Remove it from length_struct, or make it an array in a map before"
                " packing."
            )
        return length

    cdef object _values(self, Py_ssize_t rows, Py_ssize_t i, object example):
        """Return empty cells of feature i."""
        shape = (rows, self._layout.lengths[i])
        return make_matrix(shape, example, self._layout.paddings[i])

    cdef object _numbers(self, Py_ssize_t rows, Py_ssize_t i):
        """Return segment ids and positions of empty cells, or None for both."""
        if not self._layout.numbered[i]:
            return None, None
        return np.zeros((2, rows, self._layout.lengths[i]), np.int32)

    cdef object _example(self, list documents, Py_ssize_t i):
        """Return feature i of the first document that is not empty in it.

        An empty list becomes an array of float64, whatever the dtype of the others.
        """
        for document in documents:
            leaf = self._leaves_of(document)[i]
            if length_of(leaf, self._layout.names[i]):
                return leaf
        return self._leaves_of(documents[0])[i]

    cdef object _boundaries_of_rows(
        self, const int64_t[::1] begins, const int64_t[::1] ends,
        const int64_t[::1] offsets, bint stacked,
    ):
        """Return the bounds of segments, and the longest segment's length."""
        found = [
            self._boundaries_of(begins, ends, offsets[row], offsets[row + 1])
            for row in range(offsets.shape[0] - 1)
        ]
        return map(np.array, zip(*found)) if stacked else found[0]

    cdef tuple _boundaries_of(
        self, const int64_t[::1] begins, const int64_t[::1] ends, Py_ssize_t first,
        Py_ssize_t last,
    ):
        """Return the bounds of a row's segments, and the longest segment's length.

        Padding is a segment, too; documents without tokens are none.  The last bound
        fills the remaining entries.
        """
        cdef cnp.ndarray bounds = np.full(self._boundaries, self._length, np.int32)
        cdef int32_t* out = <int32_t*>cnp.PyArray_DATA(bounds)
        cdef int64_t count, longest = 0, at = 0
        cdef Py_ssize_t s, segments = 0
        for s in range(first, last):
            at += ends[s] - begins[s]
            segments += ends[s] > begins[s]
        segments += at < self._length
        if segments >= self._boundaries:
            raise ValueError(
                f"cu_seqlens must be at least {segments + 1}, got {self._boundaries}: a"
                f" row has {segments} segments, padding included. {self._length + 1},"
                " the length of a row plus 1, is always enough."
            )
        at = out[0] = segments = 0
        for s in range(first, last):
            count = ends[s] - begins[s]
            if count == 0:
                continue
            longest = max(longest, count)
            at += count
            segments += 1
            out[segments] = <int32_t>at
        return bounds, np.int32(max(longest, self._length - at))
