cimport numpy as cnp
from libc.stdint cimport int32_t, int64_t

cdef extern from "<cstddef>" namespace "std" nogil:
    cdef cppclass byte:
        pass

cdef extern from "core/batches/row_matrix.hpp" namespace "gristmill" nogil:
    cdef cppclass RowMatrix:
        byte* values
        int32_t* segment_ids
        int32_t* positions
        size_t length
        size_t cell_bytes
        void number(size_t row, size_t begin, size_t count, int32_t segment)
        void copy(size_t row, size_t begin, size_t count, const byte* source)

# Returns a view of the arrays, which must outlive it.  `values` has the shape
# (rows, length, *S).  `segment_ids` and `positions` are C-contiguous int32 arrays of
# shape (rows, length), or None.
cdef RowMatrix matrix_of(cnp.ndarray values, object segment_ids, object positions)

# Returns the number of cells that a feature takes.  `name` is its path, for the error.
# Raises ValueError if it is not an array or a scalar.
cdef int64_t length_of(object leaf, object name) except -1

# Returns an array full of padding with the dtype and trailing shape of `leaf`.  `shape`
# is its leading shape.
cdef object make_matrix(tuple shape, object leaf, object padding)

# Sets cells of an array to the padding.
cdef int clear_cells(object cells, object padding) except -1

# Adds a note to an error: which feature did not fit into which array.
cdef int add_note(object error, object name, object values) except -1

# Returns whether the cells of a leaf have the shape and dtype of those of `values`.
cdef bint has_cells_of(cnp.ndarray leaf, cnp.ndarray values)

# Writes cells [first, first + count) of a feature to a row, from cell `begin` on.
# Converts them by NumPy's rules if necessary.
cdef int write_cells(
    const RowMatrix* matrix, cnp.ndarray values, size_t row, int64_t begin,
    object leaf, int64_t first, int64_t count
) except -1
