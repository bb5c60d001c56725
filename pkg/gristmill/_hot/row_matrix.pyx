# cython: boundscheck=False, wraparound=False
"""Writes features of elements into the arrays that they are packed into.

Cells run along the second axis of an array of shape ``(rows, length, *S)``.
"""
cimport numpy as cnp
from libc.stdint cimport int32_t, int64_t

import collections.abc

import numpy as np

cnp.import_array()

cdef extern from "numpy/arrayobject.h":
    bint PyArray_EquivTypes(cnp.dtype one, cnp.dtype other) noexcept
    bint PyDataType_REFCHK(cnp.dtype dtype) noexcept

cdef object _Mapping = collections.abc.Mapping


cdef RowMatrix matrix_of(cnp.ndarray values, object segment_ids, object positions):
    cdef RowMatrix matrix
    cdef int axis
    matrix.values = <byte*>cnp.PyArray_BYTES(values)
    matrix.length = <size_t>cnp.PyArray_DIM(values, 1)
    matrix.cell_bytes = <size_t>cnp.PyArray_ITEMSIZE(values)
    for axis in range(2, cnp.PyArray_NDIM(values)):
        matrix.cell_bytes *= <size_t>cnp.PyArray_DIM(values, axis)
    if segment_ids is not None:
        matrix.segment_ids = <int32_t*>cnp.PyArray_DATA(<cnp.ndarray>segment_ids)
        matrix.positions = <int32_t*>cnp.PyArray_DATA(<cnp.ndarray>positions)
    return matrix


cdef int64_t length_of(object leaf, object name) except -1:
    if cnp.PyArray_CheckExact(leaf):
        if cnp.PyArray_NDIM(<cnp.ndarray>leaf) == 0:
            return 1
        return cnp.PyArray_DIM(<cnp.ndarray>leaf, 0)
    if leaf is None or isinstance(leaf, (list, tuple, _Mapping)):
        raise ValueError(
            f"Structures are not the same: {name} of the element must be an array or a"
            f" scalar, because length_struct has a length there, got a"
            f" {type(leaf).__name__}. Convert it in a map before packing, such as by"
            " np.asarray."
        )
    return 1 if np.ndim(leaf) == 0 else len(leaf)


cdef object make_matrix(tuple shape, object leaf, object padding):
    array = np.asarray(leaf)
    # Python's bool counts as an int, as in Grain.
    dtype = np.dtype(np.int64) if isinstance(leaf, int) else array.dtype
    if padding is None:
        return np.zeros((*shape, *array.shape[1:]), dtype)
    return np.full((*shape, *array.shape[1:]), padding, dtype)


cdef int clear_cells(object cells, object padding) except -1:
    cells[...] = np.zeros((), cells.dtype) if padding is None else padding
    return 0


cdef int add_note(object error, object name, object values) except -1:
    error.add_note(
        f"while packing {name} into cells of dtype {values.dtype} and shape"
        f" {values.shape[2:]}, which the batch has from its first element"
    )
    return 0


cdef inline bint _is_same_dtype(cnp.dtype one, cnp.dtype other):
    return one is other or PyArray_EquivTypes(one, other)


cdef bint has_cells_of(cnp.ndarray leaf, cnp.ndarray values):
    cdef int axis, dimensions = cnp.PyArray_NDIM(values)
    cdef int leaf_dimensions = cnp.PyArray_NDIM(leaf)
    # A leaf has no axis of rows.  A scalar is one cell, which has no other axes.
    if leaf_dimensions != dimensions - 1 and (leaf_dimensions != 0 or dimensions != 2):
        return False
    for axis in range(2, dimensions):
        if cnp.PyArray_DIM(leaf, axis - 1) != cnp.PyArray_DIM(values, axis):
            return False
    return _is_same_dtype(leaf.descr, values.descr)


cdef bint _is_copyable(object leaf, cnp.ndarray values):
    """Return whether the bytes of a leaf can be copied into cells unchanged."""
    return (
        cnp.PyArray_CheckExact(leaf)
        and not PyDataType_REFCHK(values.descr)
        and cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray>leaf)
        and has_cells_of(<cnp.ndarray>leaf, values)
    )


cdef int write_cells(
    const RowMatrix* matrix, cnp.ndarray values, size_t row, int64_t begin,
    object leaf, int64_t first, int64_t count
) except -1:
    cdef const byte* source
    if _is_copyable(leaf, values):
        source = <const byte*>cnp.PyArray_BYTES(<cnp.ndarray>leaf)
        matrix.copy(row, begin, count, source + first * <int64_t>matrix.cell_bytes)
    else:
        part = leaf[first:first + count] if np.ndim(leaf) else leaf
        values[row, begin:begin + count] = part
    return 0
