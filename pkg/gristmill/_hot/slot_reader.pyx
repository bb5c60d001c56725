# cython: boundscheck=False, wraparound=False
"""Reads outputs from a slot of shared memory."""
cimport cython
cimport numpy as cnp
from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.string cimport memcpy

from gristmill._hot.slot_format cimport (
    ARRAY, CACHE_LIMIT, DICT, ERROR, LIST, MAGIC, OBJECT, Header, Row, make_array,
)

import functools
import pickle

cnp.import_array()

cdef extern from "Python.h":
    bytearray PyByteArray_FromStringAndSize(const char* data, Py_ssize_t nbytes)

cdef enum:
    # The copies of an output together may take this many times the limit of one copy.
    _COPY_BUDGET_FACTOR = 4

cdef object _loads = pickle.loads
cdef cnp.dtype _UINT8 = cnp.PyArray_DescrFromType(cnp.NPY_UINT8)
# Returns (words, spec) of a layout.  A pipeline has few layouts, but keys that are made
# from data could create any number of them; hence the limit.
cdef object _parse_layout = functools.lru_cache(CACHE_LIMIT)(pickle.loads)


@cython.final
@cython.freelist(8)
cdef class Reader:
    """Reads the parts of one output from the committed bytes of a slot."""

    cdef const char* slot
    cdef uint64_t used  # The number of committed bytes.
    cdef object base_factory  # See `decode`.
    cdef object base  # The SlotView of this output, or None if no array views the slot.
    cdef uint64_t copy_limit  # The size of the largest leaf that is copied.
    cdef uint64_t copy_budget  # The number of bytes that may still be copied.
    cdef const uint64_t* words  # Offsets and dimensions, advanced by read_array().
    cdef list objects  # The leaves that are not arrays.
    cdef Py_ssize_t next_object  # The index of the next one in `objects`.

    cdef const char* at(self, uint64_t offset, uint64_t nbytes) except NULL:
        """Return the address of bytes, after checking that they are committed."""
        if nbytes > self.used or offset > self.used - nbytes:
            raise ValueError(
                f"The slot must have {nbytes} bytes at offset {offset}, got a slot of"
                f" only {self.used} bytes."
            )
        return self.slot + offset

    cdef bint reserve_copy(self, uint64_t nbytes) noexcept:
        """Return whether to copy a leaf of this size; if so, reduce the copy budget."""
        if nbytes > self.copy_limit or nbytes > self.copy_budget:
            return False
        self.copy_budget -= nbytes
        return True

    cdef cnp.ndarray view_of(
        self, const char* data, cnp.dtype descr, int n, const cnp.npy_intp* dims
    ):
        """Return an array on memory of the slot that keeps the slot in use."""
        cdef cnp.ndarray array = make_array(<uintptr_t>data, descr, n, dims)
        if self.base is None:
            self.base = self.base_factory()
        cnp.set_array_base(array, self.base)
        return array

    cdef object read_array(self, cnp.dtype descr, int n):
        """Return the next array, which has n dimensions."""
        cdef uint64_t offset = self.words[0]
        cdef const cnp.npy_intp* dims = <const cnp.npy_intp*>(self.words + 1)
        cdef uint64_t nbytes = descr.itemsize
        cdef const char* data
        cdef cnp.ndarray array
        cdef int i
        self.words += 1 + n
        for i in range(n):  # The division cannot overflow, unlike the product.
            if dims[i] > 0 and nbytes > self.used // <uint64_t>dims[i]:
                raise ValueError(
                    f"Arrays must have at most {self.used} bytes, the size of the slot,"
                    f" got {dims[i]} times {nbytes} bytes."
                )
            nbytes *= dims[i]
        if nbytes == 0:
            return make_array(0, descr, n, dims)
        data = self.at(offset, nbytes)
        if self.reserve_copy(nbytes):
            array = make_array(0, descr, n, dims)
            memcpy(cnp.PyArray_DATA(array), data, nbytes)
            return array
        return self.view_of(data, descr, n, dims)

    cdef object read_buffer(self, uint64_t offset, uint64_t nbytes):
        """Return an out-of-band buffer of the pickle: a copy, or a view of the slot."""
        cdef const char* data = self.at(offset, nbytes)
        if self.reserve_copy(nbytes):
            return PyByteArray_FromStringAndSize(data, nbytes)
        return memoryview(self.view_of(data, _UINT8, 1, <const cnp.npy_intp*>&nbytes))

    cdef object build(self, tuple spec):
        """Return the part of the element with this spec, made of the next leaves."""
        cdef int kind = <object>PyTuple_GET_ITEM(spec, 0)
        cdef tuple keys, children
        cdef Py_ssize_t i
        cdef list items
        cdef dict result
        if kind == ARRAY:
            return self.read_array(
                <cnp.dtype>PyTuple_GET_ITEM(spec, 1), <object>PyTuple_GET_ITEM(spec, 2)
            )
        if kind == OBJECT:
            self.next_object += 1
            return self.objects[self.next_object - 1]
        if kind == DICT:
            keys = <tuple>PyTuple_GET_ITEM(spec, 1)
            children = <tuple>PyTuple_GET_ITEM(spec, 2)
            result = {}
            for i in range(PyTuple_GET_SIZE(children)):
                result[<object>PyTuple_GET_ITEM(keys, i)] = self.build(
                    <tuple>PyTuple_GET_ITEM(children, i)
                )
            return result
        children = <tuple>PyTuple_GET_ITEM(spec, 1)
        items = []
        for i in range(PyTuple_GET_SIZE(children)):
            items.append(self.build(<tuple>PyTuple_GET_ITEM(children, i)))
        return items if kind == LIST else tuple(items)


cdef object _short_rest_error(const Row* row, uint64_t n_words):
    return ValueError(
        f"The rest of an output must have at least {n_words} words of 8 bytes, got"
        f" {row.rest_bytes} bytes."
    )


cdef object _read_element(Reader reader, const Row* row):
    """Return the element of a row that is not an error."""
    cdef const char* data = reader.at(row.layout_at, row.layout_bytes)
    cdef tuple layout = _parse_layout(PyBytes_FromStringAndSize(data, row.layout_bytes))
    cdef uint64_t n_words = layout[0], n_buffers, i, pickle_at
    cdef const char* rest = reader.at(row.rest_at, row.rest_bytes)
    cdef const uint64_t* buffer_table
    cdef list buffers = []
    if row.rest_bytes // 8 <= n_words:
        raise _short_rest_error(row, n_words)
    reader.words = <const uint64_t*>rest
    buffer_table = reader.words + n_words
    n_buffers = buffer_table[0]
    if n_buffers > (row.rest_bytes // 8 - n_words - 1) // 2:
        raise _short_rest_error(row, n_words + 1 + 2 * n_buffers)
    pickle_at = 8 * (n_words + 1 + 2 * n_buffers)
    if row.rest_bytes > pickle_at:
        for i in range(n_buffers):
            buffers.append(
                reader.read_buffer(buffer_table[1 + 2 * i], buffer_table[2 + 2 * i])
            )
        reader.objects = _loads(
            PyMemoryView_FromMemory(
                <char*>rest + pickle_at, row.rest_bytes - pickle_at, PyBUF_READ
            ),
            buffers=buffers,
        )
    return reader.build(<tuple>layout[1])


def decode(
    uintptr_t address, uint64_t used, int64_t index, base_factory, uint64_t copy_limit
):
    """Read one output: ``(element, keys, position)``; the last two are int64 arrays.

    Args:
        address: The address of the slot.
        used: The number of committed bytes; nothing after them is read.
        index: The number of the output in the unit, from 0.
        base_factory: Returns the SlotView that keeps the slot in use.  It is called
            once, and only if some array views the slot.
        copy_limit: Leaves up to this many bytes are copied, up to four times this
            many bytes per output.

    The element of an error is its bytes.  Arrays are writable.

    Raises:
        ValueError: The contents of the slot are not valid.
    """
    cdef Reader reader = Reader.__new__(Reader)
    cdef const Header* header
    cdef const Row* row
    cdef cnp.npy_intp n_keys, length, room
    cdef uint64_t width
    cdef object element
    cdef cnp.ndarray keys, position
    reader.slot = <const char*>address
    reader.used = used
    reader.base_factory = base_factory
    reader.copy_limit = copy_limit
    reader.copy_budget = _COPY_BUDGET_FACTOR * copy_limit
    reader.next_object = 0
    header = <const Header*>reader.at(0, sizeof(Header))
    if header.magic != MAGIC or index < 0 or index >= header.outputs:
        raise ValueError(
            f"The slot must have output {index} and the magic number {MAGIC:#x}, got a"
            f" header with {header.outputs} outputs and {header.magic:#x}."
        )
    width = sizeof(Row) + 8 * <uint64_t>header.position_room
    row = <const Row*>reader.at(header.table + index * width, width)
    length, room = row.position_len, header.position_room
    if length > room:
        raise ValueError(
            f"A position must have at most {room} integers in this slot, got {length}."
        )
    position = cnp.PyArray_EMPTY(1, &length, cnp.NPY_INT64, 0)
    memcpy(cnp.PyArray_DATA(position), <const char*>row + sizeof(Row), 8 * length)
    n_keys = row.n_keys
    keys = cnp.PyArray_EMPTY(1, &n_keys, cnp.NPY_INT64, 0)
    memcpy(
        cnp.PyArray_DATA(keys), reader.at(row.keys_at, 8 * <uint64_t>n_keys), 8 * n_keys
    )
    if row.flags & ERROR or not row.layout_bytes:
        element = PyBytes_FromStringAndSize(
            reader.at(row.rest_at, row.rest_bytes), row.rest_bytes
        )
    else:
        element = _read_element(reader, row)
    return element, keys, position
