# cython: boundscheck=False, wraparound=False
"""Writes outputs into a slot of shared memory and reads them back.

Its plain-Python twin is gristmill._slow.transport, which also has the format.
"""
cimport cython
cimport numpy as cnp
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

import operator
import pickle

import numpy as np

from gristmill._hot.signals import NeedSpace as NeedSpace
from gristmill._slow.transport import TooDeep, dump, dump_layout, goes_in_place

cnp.import_array()

cdef extern from "Python.h":
    bytearray PyByteArray_FromStringAndSize(const char* data, Py_ssize_t nbytes)

cdef Py_ssize_t LARGEST = 1 << 62  # Bytes; sums of a few stay below 2**63.
cdef object _loads = pickle.loads
cdef tuple _OBJECT_SPEC = (OBJECT,)
# Layouts by spec where they are written, and (words, spec) by layout where they
# are read.  A pipeline has few; the limit guards against keys made from data.
cdef dict _layout_of = {}
cdef dict _spec_of = {}


@cython.final
cdef class SlotWriter:
    """Hands out the memory of one slot from its start.

    Args:
        address: Where the slot begins.
        capacity: Its size in bytes.
    """

    def __init__(self, uintptr_t address, Py_ssize_t capacity):
        self.address = address
        self.capacity = capacity
        self.used = HEADER_BYTES

    def alloc(self, Py_ssize_t nbytes, Py_ssize_t align=64):
        """Return the offset of nbytes unused bytes; align is a power of 2.

        Raises:
            NeedSpace: The slot is too small.
        """
        cdef Py_ssize_t before = self.used, needed, offset
        if nbytes < 0 or nbytes > LARGEST or align < 1 or align & (align - 1):
            raise ValueError(f"cannot allocate {nbytes} bytes aligned to {align}")
        offset = self._take(nbytes, align)
        if self.used > self.capacity:
            needed = self.used
            self.used = before
            raise NeedSpace(needed)
        return offset

    def empty(self, shape, dtype):
        """Return an array in the slot, not filled.

        Raises:
            NeedSpace: The slot is too small.
        """
        cdef cnp.npy_intp dims[64]
        cdef cnp.dtype descr = np.dtype(dtype)
        cdef tuple sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        cdef int i, n = len(sizes)
        cdef Py_ssize_t nbytes = descr.itemsize
        if descr.hasobject:
            return np.empty(shape, descr)
        if n > 64:
            raise ValueError(f"at most 64 dimensions, got {n}")
        for i in range(n):
            dims[i] = operator.index(sizes[i])
            if dims[i] < 0:
                raise ValueError("negative dimensions are not allowed")
            if dims[i] and nbytes > LARGEST // dims[i]:
                raise ValueError("array is too big")
            nbytes *= dims[i]
        return _view(self.address + <Py_ssize_t>self.alloc(nbytes), descr, n, dims)

    cdef Py_ssize_t _take(self, Py_ssize_t nbytes, Py_ssize_t align) noexcept:
        cdef Py_ssize_t offset = (self.used + align - 1) & -align
        self.used = offset + nbytes
        return offset

    cdef char* _at(self, Py_ssize_t offset, Py_ssize_t nbytes) noexcept:
        if offset + nbytes > self.capacity:
            return NULL
        return <char*>self.address + offset

    cdef Py_ssize_t _put(
        self, const void* data, Py_ssize_t nbytes, Py_ssize_t align
    ) noexcept:
        cdef Py_ssize_t offset = self._take(nbytes, align)
        cdef char* to = self._at(offset, nbytes)
        if to is not NULL and nbytes:
            memcpy(to, data, nbytes)
        return offset

    cdef Py_ssize_t _place(self, cnp.ndarray array) except -1:
        """Offset of an array that lies in the slot, or of a copy made there."""
        cdef Py_ssize_t nbytes = cnp.PyArray_NBYTES(array)
        cdef uintptr_t data = <uintptr_t>cnp.PyArray_DATA(array)
        cdef Py_ssize_t offset
        if nbytes == 0:
            return 0
        if cnp.PyArray_IS_C_CONTIGUOUS(array):
            if (
                self.address <= data
                and data + nbytes <= self.address + self.capacity
            ):
                return data - self.address
            return self._put(<void*>data, nbytes, 64)
        offset = self._take(nbytes, 64)
        if self._at(offset, nbytes) is not NULL:
            cnp.PyArray_CopyInto(
                _view(
                    self.address + offset, array.dtype, cnp.PyArray_NDIM(array),
                    cnp.PyArray_DIMS(array),
                ),
                array,
            )
        return offset


cdef cnp.ndarray _view(
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


cdef tuple _walk(object tree, list arrays, list objects, int depth, bint* plain):
    """The spec of a tree; its arrays and the rest of its leaves are appended.

    ``plain`` becomes false where a key is not a str: such keys may be equal and yet
    differ, so the spec cannot be looked up.
    """
    cdef int kind
    cdef object part
    cdef list children
    cdef Py_ssize_t n_arrays, n_objects
    if cnp.PyArray_CheckExact(tree) and goes_in_place(tree):
        arrays.append(tree)
        return (ARRAY, (<cnp.ndarray>tree).dtype, cnp.PyArray_NDIM(<cnp.ndarray>tree))
    if type(tree) is dict:
        kind = DICT
    elif type(tree) is list:
        kind = LIST
    elif type(tree) is tuple:
        kind = TUPLE
    else:
        objects.append(tree)
        return _OBJECT_SPEC
    if depth == MAX_DEPTH:
        raise TooDeep
    n_arrays = len(arrays)
    n_objects = len(objects)
    children = []
    if kind == DICT:
        for part in (<dict>tree).values():
            children.append(_walk(part, arrays, objects, depth + 1, plain))
    else:
        for part in tree:
            children.append(_walk(part, arrays, objects, depth + 1, plain))
    if len(arrays) == n_arrays:
        # Without arrays the pickle of the whole is shorter than that of its parts.
        del objects[n_objects:]
        objects.append(tree)
        return _OBJECT_SPEC
    if kind != DICT:
        return (kind, tuple(children))
    for part in <dict>tree:
        if type(part) is not str:
            plain[0] = False
    return (DICT, tuple(tree), tuple(children))


cdef bytes _layout(tuple spec, Py_ssize_t n_words, bint plain):
    cdef object found = _layout_of.get(spec) if plain else None
    if found is None:
        found = dump_layout((n_words, spec))
        if plain:
            if len(_layout_of) >= CACHE_LIMIT:
                _layout_of.clear()
            _layout_of[spec] = found
    return <bytes>found


cdef int _encode_one(
    SlotWriter writer, object element, object keys, dict layouts, Row* row
) except -1:
    cdef list arrays = [], objects = [], words = []
    cdef bint plain = True
    cdef tuple spec
    cdef bytes layout, pickled = b""
    cdef list buffers = []
    cdef cnp.ndarray array, key_array
    cdef Py_ssize_t i, n_words, rest_bytes
    cdef uint64_t* to
    cdef object found
    try:
        spec = _walk(element, arrays, objects, 0, &plain)
    except TooDeep:
        arrays = []
        objects = [element]
        spec = _OBJECT_SPEC
    for array in arrays:
        words.append(writer._place(array))
        for i in range(cnp.PyArray_NDIM(array)):
            words.append(cnp.PyArray_DIM(array, i))
    layout = _layout(spec, len(words), plain)
    found = layouts.get(layout)
    if found is None:
        found = writer._put(PyBytes_AS_STRING(layout), PyBytes_GET_SIZE(layout), 8)
        layouts[layout] = found
    if objects:
        pickled, buffers = dump(objects)
    words.append(len(buffers))
    for raw in buffers:
        words.append(writer._place(np.frombuffer(raw, np.uint8)))
        words.append(raw.nbytes)
    key_array = np.ascontiguousarray(keys, np.int64)
    n_words = len(words)
    rest_bytes = 8 * n_words + PyBytes_GET_SIZE(pickled)
    row.layout_at = found
    row.layout_bytes = <uint32_t>PyBytes_GET_SIZE(layout)
    row.flags = 0
    row.n_keys = <uint32_t>cnp.PyArray_SIZE(key_array)
    row.keys_at = writer._put(
        cnp.PyArray_DATA(key_array), cnp.PyArray_NBYTES(key_array), 8
    )
    row.rest_at = writer._take(rest_bytes, 8)
    row.rest_bytes = rest_bytes
    to = <uint64_t*>writer._at(row.rest_at, rest_bytes)
    if to is not NULL:
        for i in range(n_words):
            to[i] = words[i]
        memcpy(to + n_words, PyBytes_AS_STRING(pickled), PyBytes_GET_SIZE(pickled))
    return 0


cdef int _finish_row(
    SlotWriter writer, Py_ssize_t offset, Row* row, object vector, Py_ssize_t room
) except -1:
    """Stores a row and its position, if the slot reaches so far."""
    cdef Py_ssize_t i, n = len(vector)
    cdef char* to = writer._at(offset, sizeof(Row) + 8 * room)
    cdef int64_t* numbers = <int64_t*>(to + sizeof(Row))
    if to is NULL:
        return 0
    row.vector_len = <uint32_t>n
    memcpy(to, row, sizeof(Row))
    if type(vector) is tuple:
        for i in range(n):
            numbers[i] = (<tuple>vector)[i]
    else:
        vector = np.ascontiguousarray(vector, np.int64)
        memcpy(numbers, cnp.PyArray_DATA(<cnp.ndarray>vector), 8 * n)
    memset(numbers + n, 0, 8 * (room - n))
    return 0


cdef int _encode_all(SlotWriter writer, list outputs, tuple failure) except -1:
    cdef Py_ssize_t n = len(outputs) + (failure is not None), at, room = 0, width
    cdef dict layouts = {}
    cdef Row row
    cdef Header header
    cdef bytes error
    cdef char* to
    for _, _, vector in outputs if failure is None else [*outputs, (0, *failure)]:
        room = max(room, <Py_ssize_t>len(vector))
    width = sizeof(Row) + 8 * room
    header.magic = MAGIC
    header.outputs = n
    header.vector_room = room
    header.status = 0 if failure is None else ERROR
    header.table = at = writer._take(n * width, 8)
    for element, keys, vector in outputs:
        _encode_one(writer, element, keys, layouts, &row)
        _finish_row(writer, at, &row, vector, room)
        at += width
    if failure is not None:
        error, vector = failure
        row = Row(0, 0, ERROR, 0, PyBytes_GET_SIZE(error), 0, 0, 0)
        row.rest_at = writer._put(PyBytes_AS_STRING(error), row.rest_bytes, 8)
        _finish_row(writer, at, &row, vector, room)
    to = writer._at(0, sizeof(Header))
    if to is not NULL:
        memcpy(to, &header, sizeof(Header))
    return 0


def encode(SlotWriter writer not None, list outputs not None, tuple failure):
    """Write all outputs of a unit; returns the bytes of the slot that are used.

    See gristmill._slow.transport.encode.  When it raises, the writer is as before.
    """
    cdef Py_ssize_t before = writer.used, needed
    try:
        _encode_all(writer, outputs, failure)
    except BaseException:
        writer.used = before
        raise
    if writer.used > writer.capacity:
        needed = writer.used
        writer.used = before
        raise NeedSpace(needed)
    return writer.used


@cython.final
@cython.freelist(8)
cdef class Reader:
    """Takes the parts of one output out of a slot, within its committed bytes."""

    cdef const char* at(self, uint64_t offset, uint64_t nbytes) except NULL:
        if nbytes > self.used or offset > self.used - nbytes:
            raise ValueError(
                f"{nbytes} bytes at {offset} are beyond the {self.used} of the slot"
            )
        return self.slot + offset

    cdef bint copies(self, uint64_t nbytes) noexcept:
        if nbytes > self.copy_limit or nbytes > self.copies_left:
            return False
        self.copies_left -= nbytes
        return True

    cdef int need_base(self) except -1:
        if self.base is None:
            self.base = self.base_factory()
        return 0

    cdef object array(self, cnp.dtype descr, int n):
        cdef uint64_t offset = self.words[0]
        cdef const cnp.npy_intp* dims = <const cnp.npy_intp*>(self.words + 1)
        cdef uint64_t nbytes = descr.itemsize
        cdef const char* data
        cdef cnp.ndarray out
        cdef int i
        self.words += 1 + n
        for i in range(n):
            if dims[i] > 0 and nbytes > self.used // <uint64_t>dims[i]:
                raise ValueError(f"an array is larger than the {self.used} of the slot")
            nbytes *= dims[i]
        if nbytes == 0:
            return _view(0, descr, n, dims)
        data = self.at(offset, nbytes)
        if self.copies(nbytes):
            out = _view(0, descr, n, dims)
            memcpy(cnp.PyArray_DATA(out), data, nbytes)
            return out
        self.need_base()
        out = _view(<uintptr_t>data, descr, n, dims)
        cnp.set_array_base(out, self.base)
        return out

    cdef object buffer(self, uint64_t offset, uint64_t nbytes):
        cdef const char* data = self.at(offset, nbytes)
        if self.copies(nbytes):
            return PyByteArray_FromStringAndSize(data, nbytes)
        self.need_base()
        return memoryview(self.base.slice(<uintptr_t>data, nbytes))

    cdef object build(self, tuple spec):
        cdef int kind = <object>PyTuple_GET_ITEM(spec, 0)
        cdef tuple keys, children
        cdef Py_ssize_t i
        cdef list items
        cdef dict out
        if kind == ARRAY:
            return self.array(
                <cnp.dtype>PyTuple_GET_ITEM(spec, 1), <object>PyTuple_GET_ITEM(spec, 2)
            )
        if kind == OBJECT:
            self.next_object += 1
            return self.objects[self.next_object - 1]
        if kind == DICT:
            keys = <tuple>PyTuple_GET_ITEM(spec, 1)
            children = <tuple>PyTuple_GET_ITEM(spec, 2)
            out = {}
            for i in range(PyTuple_GET_SIZE(children)):
                out[<object>PyTuple_GET_ITEM(keys, i)] = self.build(
                    <tuple>PyTuple_GET_ITEM(children, i)
                )
            return out
        children = <tuple>PyTuple_GET_ITEM(spec, 1)
        items = []
        for i in range(PyTuple_GET_SIZE(children)):
            items.append(self.build(<tuple>PyTuple_GET_ITEM(children, i)))
        return items if kind == LIST else tuple(items)


cdef tuple _parse_layout(const char* data, Py_ssize_t nbytes):
    cdef bytes layout = PyBytes_FromStringAndSize(data, nbytes)
    cdef object found = _spec_of.get(layout)
    if found is None:
        found = _loads(layout)
        if len(_spec_of) >= CACHE_LIMIT:
            _spec_of.clear()
        _spec_of[layout] = found
    return <tuple>found


cdef object _element(Reader reader, const Row* row):
    """The element of a row that is no error."""
    cdef tuple layout = _parse_layout(
        reader.at(row.layout_at, row.layout_bytes), row.layout_bytes
    )
    cdef uint64_t n_words = layout[0], n_buffers, i, head
    cdef const char* rest = reader.at(row.rest_at, row.rest_bytes)
    cdef const uint64_t* more
    cdef list buffers = []
    if row.rest_bytes // 8 <= n_words:
        raise ValueError(f"the rest of an output has {row.rest_bytes} bytes")
    reader.words = <const uint64_t*>rest
    more = reader.words + n_words
    n_buffers = more[0]
    if n_buffers > (row.rest_bytes // 8 - n_words - 1) // 2:
        raise ValueError(f"the rest of an output has {row.rest_bytes} bytes")
    head = 8 * (n_words + 1 + 2 * n_buffers)
    if row.rest_bytes > head:
        for i in range(n_buffers):
            buffers.append(reader.buffer(more[1 + 2 * i], more[2 + 2 * i]))
        reader.objects = _loads(
            PyMemoryView_FromMemory(
                <char*>rest + head, row.rest_bytes - head, PyBUF_READ
            ),
            buffers=buffers,
        )
    return reader.build(<tuple>layout[1])


def decode(
    uintptr_t address, uint64_t used, int64_t index, base_factory, uint64_t copy_limit
):
    """Read one output: ``(element, keys, vector)``.

    See gristmill._slow.transport.decode.  ``base_factory`` is called once, and only
    if something views the slot.
    """
    cdef Reader reader = Reader.__new__(Reader)
    cdef const Header* header
    cdef const Row* row
    cdef cnp.npy_intp n_keys, length, room
    cdef uint64_t width
    cdef object element
    cdef cnp.ndarray keys, vector
    reader.slot = <const char*>address
    reader.used = used
    reader.base_factory = base_factory
    reader.copy_limit = copy_limit
    reader.copies_left = COPIES * copy_limit
    reader.next_object = 0
    header = <const Header*>reader.at(0, sizeof(Header))
    if header.magic != MAGIC or index < 0 or index >= header.outputs:
        raise ValueError(f"output {index} is not in the slot")
    width = sizeof(Row) + 8 * <uint64_t>header.vector_room
    row = <const Row*>reader.at(header.table + index * width, width)
    length, room = row.vector_len, header.vector_room
    if length > room:
        raise ValueError(f"a position of {length} integers in a row with {room}")
    vector = cnp.PyArray_EMPTY(1, &length, cnp.NPY_INT64, 0)
    memcpy(cnp.PyArray_DATA(vector), <const char*>row + sizeof(Row), 8 * length)
    n_keys = row.n_keys
    keys = cnp.PyArray_EMPTY(1, &n_keys, cnp.NPY_INT64, 0)
    memcpy(
        cnp.PyArray_DATA(keys), reader.at(row.keys_at, 8 * <uint64_t>n_keys), 8 * n_keys
    )
    if row.flags & ERROR:
        element = PyBytes_FromStringAndSize(
            reader.at(row.rest_at, row.rest_bytes), row.rest_bytes
        )
    else:
        element = _element(reader, row)
    return element, keys, vector
