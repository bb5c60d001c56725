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

# Returns a view of arrays of shape (rows, length, *S) and twice (rows, length), which
# must outlive it; the latter two, C-contiguous int32, may be None.
cdef RowMatrix matrix_of(cnp.ndarray values, object segment_ids, object positions)

# Returns how many cells a feature takes.  `name` says where it is, for the error.
# Raises ValueError where it is no array or scalar.
cdef int64_t length_of(object leaf, object name) except -1

# Returns an array of padding for leaves like this one; `shape` comes first.
cdef object make_matrix(tuple shape, object leaf, object padding)

# Sets cells to what they hold where nothing is packed.
cdef int blank(object cells, object padding) except -1

# Notes on an error which feature did not fit into which array.
cdef int add_note(object error, object name, object values) except -1

# Returns whether a cell of an array is what one of the values is.
cdef bint has_cells_of(cnp.ndarray array, cnp.ndarray values)

# Writes cells [first, first + count) of a feature to a row, from cell `begin` on, by
# NumPy's conversions where it takes them.
cdef int write(
    const RowMatrix* matrix, cnp.ndarray values, size_t row, int64_t begin,
    object leaf, int64_t first, int64_t count
) except -1
