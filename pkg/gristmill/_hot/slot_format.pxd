"""The bytes of a slot: a header, a table with a row for each output, what rows point at.

Offsets are from the start of the slot; all numbers are little-endian.  The page
docs/formats/slot.md tells it in words.
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
    HEADER_BYTES = 64  # Where the first output may begin.
    ERROR = 1
    MAX_DEPTH = 32  # Of containers; what lies deeper is pickled as a whole.
    LIGHT_PARTS = 16  # To walk as many again costs no more than to remember them.
    CACHE_LIMIT = 512  # Layouts that a process remembers.

# The first item of a spec; ARRAY is followed by dtype and number of dimensions, DICT
# by its keys and the specs of its values, LIST and TUPLE by the specs of their items.
cdef enum Kind:
    ARRAY, OBJECT, DICT, LIST, TUPLE

cdef struct Header:
    uint32_t magic
    uint32_t outputs
    uint32_t position_room  # Integers that each row has room for behind it.
    uint32_t status  # ERROR if the last output is one.
    uint64_t table  # Offset of the first row.

cdef struct Row:
    uint64_t layout_at  # A pickle of (words, spec), shared by outputs that are alike.
    uint32_t layout_bytes
    uint32_t flags  # ERROR: the rest is the bytes of an error.
    # `words` u64, for each array its offset and dimensions; then the number of
    # out-of-band buffers, offset and bytes of each, and a pickle of all other leaves.
    uint64_t rest_at
    uint64_t rest_bytes
    uint64_t keys_at  # Record keys, int64.
    uint32_t n_keys
    uint32_t position_len  # Integers of the position after this output, int64.

cdef inline cnp.ndarray view(
    uintptr_t address, cnp.dtype descr, int n, const cnp.npy_intp* dims
):
    """A writable array on plain memory; a new one of its own for address 0."""
    cdef cnp.ndarray out
    Py_INCREF(descr)
    if address == 0:
        return PyArray_NewFromDescr(
            cnp.ndarray, descr, n, dims, NULL, NULL, 0, NULL
        )
    out = PyArray_NewFromDescr(
        cnp.ndarray, descr, n, dims, NULL, <void*>address, cnp.NPY_ARRAY_CARRAY, NULL
    )
    cnp.PyArray_UpdateFlags(out, cnp.NPY_ARRAY_UPDATE_ALL)
    return out
