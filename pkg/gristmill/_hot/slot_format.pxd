"""The format of a slot: a header, a table with a row for each output, and data.

The rows contain the offsets of the data.  Offsets are relative to the start of the
slot; all numbers are little-endian.  docs/formats/slot.md describes the format.
"""
cimport numpy as cnp
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewFromDescr(
        type subtype, cnp.dtype descr, int nd, const cnp.npy_intp* dims,
        const cnp.npy_intp* strides, void* data, int flags, PyObject* obj
    )

cdef enum:
    MAGIC = 0x31534D47  # "GMS1"
    HEADER_BYTES = 64  # The smallest offset of an output.
    ERROR = 1
    MAX_DEPTH = 32  # More deeply nested containers are pickled as a whole.
    # Containers with at most this many parts are walked again each time they occur,
    # which is not slower than caching the result.
    LIGHT_PARTS = 16
    CACHE_LIMIT = 512  # The number of layouts in a process's cache.

# The first item of a spec.  After ARRAY come the dtype and the number of dimensions,
# after DICT the keys and the specs of the values, after LIST and TUPLE the specs of the
# items.
cdef enum Kind:
    ARRAY, OBJECT, DICT, LIST, TUPLE

cdef struct Header:
    uint32_t magic
    uint32_t outputs
    uint32_t position_room  # Space after each row, in int64 integers.
    uint32_t status  # ERROR if the last output is one.
    uint64_t table  # Offset of the first row.

cdef struct Row:
    uint64_t layout_at  # A pickle of (words, spec), shared by outputs with this layout.
    uint32_t layout_bytes
    uint32_t flags  # ERROR: the rest is the bytes of an error.
    # The rest: `words` u64 with the offset and dimensions of each array, the number of
    # out-of-band buffers, the offset and bytes of each buffer, and a pickle of all
    # other leaves.
    uint64_t rest_at
    uint64_t rest_bytes
    uint64_t keys_at  # Record keys, int64.
    uint32_t n_keys
    uint32_t position_len  # The number of int64 in the position after this output.

cdef inline cnp.ndarray make_array(
    uintptr_t address, cnp.dtype descr, int n, const cnp.npy_intp* dims
):
    """Return a writable array on the memory at `address`; for 0, on new memory."""
    cdef cnp.ndarray array
    Py_INCREF(descr)
    if address == 0:
        return PyArray_NewFromDescr(
            cnp.ndarray, descr, n, dims, NULL, NULL, 0, NULL
        )
    array = PyArray_NewFromDescr(
        cnp.ndarray, descr, n, dims, NULL, <void*>address, cnp.NPY_ARRAY_CARRAY, NULL
    )
    cnp.PyArray_UpdateFlags(array, cnp.NPY_ARRAY_UPDATE_ALL)
    return array
