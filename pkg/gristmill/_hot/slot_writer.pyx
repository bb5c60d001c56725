# cython: boundscheck=False, wraparound=False
"""Writes outputs into a slot of shared memory."""
cimport cython
cimport numpy as cnp
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector as cpp_vector

from gristmill._hot.slot_format cimport (
    CACHE_LIMIT, ERROR, HEADER_BYTES, MAGIC, OBJECT, Header, Row, view,
)
from gristmill._hot.slot_walk cimport SlotWalk

import functools
import operator
import pickle

import numpy as np

from gristmill._base import writable_arrays
from gristmill._hot.exceptions import SlotTooSmallError as SlotTooSmallError

cnp.import_array()

cdef extern from "numpy/arrayobject.h":
    bint PyDataType_REFCHK(cnp.dtype dtype) noexcept

cdef enum:
    # Smaller buffers are cheaper inside the pickle than out of band.
    _IN_BAND_BYTES = 4096
    MAX_DIMENSIONS = 64  # NumPy's limit.

# The largest array, in bytes.  Adding an offset in the slot does not overflow.
cdef Py_ssize_t LARGEST = 1 << 62
cdef tuple _OBJECT_SPEC = (OBJECT,)


@cython.final
cdef class SlotWriter:
    """Allocates the memory of one slot from its start.

    Args:
        address: The address of the slot.
        capacity: The size of the slot in bytes.
    """

    cdef readonly uintptr_t address
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t used
    # The begin and end of each output array that lies in the slot, and the largest of
    # these ends.
    cdef cpp_vector[Py_ssize_t] _placed
    cdef Py_ssize_t _placed_end

    def __init__(self, uintptr_t address, Py_ssize_t capacity):
        self.address = address
        self.capacity = capacity
        self.used = HEADER_BYTES

    def empty(self, shape, dtype):
        """Return an uninitialized array in the slot.

        If the slot is full, the array is in private memory, which `encode` copies.
        """
        cdef tuple sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        cdef cnp.dtype descr
        cdef Py_ssize_t before = self.used, offset
        descr = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
        if PyDataType_REFCHK(descr):
            return np.empty(shape, descr)
        nbytes = descr.itemsize
        for size in sizes:
            if size < 0:
                raise ValueError("negative dimensions are not allowed")
            nbytes *= operator.index(size)
        if nbytes > LARGEST:
            raise ValueError("array is too big")  # Like NumPy.
        offset = self._take(nbytes, 64)
        if self.used > self.capacity:
            self.used = before
            return np.empty(shape, descr)
        return self._array(offset, sizes, descr)

    cdef object _array(self, Py_ssize_t offset, tuple shape, cnp.dtype descr):
        """Return an array on memory of the slot."""
        cdef cnp.npy_intp sizes[MAX_DIMENSIONS]
        cdef cnp.ndarray array
        cdef int n = <int>len(shape), i
        if n > MAX_DIMENSIONS:
            raise ValueError(
                f"Arrays must have at most {MAX_DIMENSIONS} dimensions, got {n}."
            )
        for i in range(n):
            sizes[i] = shape[i]
        array = view(self.address + offset, descr, n, sizes)
        cnp.set_array_base(array, self)
        return array

    cdef Py_ssize_t _take(self, Py_ssize_t nbytes, Py_ssize_t align) noexcept:
        """Allocate bytes and return their offset.

        The offset may be beyond the end of the slot; `used` is then the needed size.
        """
        cdef Py_ssize_t offset = (self.used + align - 1) & -align
        self.used = offset + nbytes
        return offset

    cdef char* _at(self, Py_ssize_t offset, Py_ssize_t nbytes) noexcept:
        """Return the address of nbytes at an offset; NULL if they exceed the slot."""
        if offset + nbytes > self.capacity:
            return NULL
        return <char*>self.address + offset

    cdef Py_ssize_t _put(
        self, const void* data, Py_ssize_t nbytes, Py_ssize_t align
    ) noexcept:
        """Copy bytes into the slot if they fit, and return their offset."""
        cdef Py_ssize_t offset = self._take(nbytes, align)
        cdef char* to = self._at(offset, nbytes)
        if to is not NULL and nbytes:
            memcpy(to, data, nbytes)
        return offset

    cdef bint _claim(self, Py_ssize_t begin, Py_ssize_t end) noexcept:
        """Claim bytes of the slot for an output array.

        Returns False, and claims nothing, if another output array overlaps them.
        """
        cdef size_t i
        if begin < self._placed_end:
            for i in range(0, self._placed.size(), 2):
                if begin < self._placed[i + 1] and self._placed[i] < end:
                    return False
        self._placed.push_back(begin)
        self._placed.push_back(end)
        self._placed_end = max(self._placed_end, end)
        return True

    cdef Py_ssize_t _place(self, cnp.ndarray array) except -1:
        """Return the offset of an array in the slot; copy it there if necessary.

        Overlapping views are copied, so that each received array has its own memory.
        """
        cdef Py_ssize_t nbytes = cnp.PyArray_NBYTES(array)
        cdef uintptr_t data = <uintptr_t>cnp.PyArray_DATA(array)
        cdef Py_ssize_t offset
        if nbytes == 0:
            return 0
        if cnp.PyArray_IS_C_CONTIGUOUS(array):
            if (
                self.address <= data
                and data + nbytes <= self.address + self.capacity
                and self._claim(data - self.address, data - self.address + nbytes)
            ):
                return data - self.address
            return self._put(<void*>data, nbytes, 64)
        offset = self._take(nbytes, 64)
        if self._at(offset, nbytes) is not NULL:
            self._array(offset, (<object>array).shape, array.descr)[...] = array
        return offset


def _dump(thing):
    """Pickle with large buffers out of band; return ``(bytes, buffers)``."""
    buffers = []
    read_only = False

    def keep_in_band(buffer):
        nonlocal read_only
        raw = buffer.raw()
        read_only = read_only or raw.readonly
        if raw.nbytes < _IN_BAND_BYTES:
            return True
        buffers.append(raw)
        return False

    try:
        pickled = pickle.dumps(thing, 5, buffer_callback=keep_in_band)
        if read_only:
            buffers.clear()
            pickled = writable_arrays.dumps(thing, keep_in_band)
        return pickled, buffers
    except Exception:
        # Slow to import, rarely needed.
        from gristmill._base import open_files

        buffers.clear()
        return open_files.dumps(thing, keep_in_band), buffers


def _new_layout(spec, n_words):
    return _dump((n_words, spec))[0]


# A pipeline has few layouts, but keys that are made from data could create any number
# of them; hence the limit.
_layout = functools.lru_cache(CACHE_LIMIT)(_new_layout)


cdef int _put_keys(SlotWriter writer, object keys, Row* row) except -1:
    cdef cnp.ndarray array = np.ascontiguousarray(keys, np.int64)
    row.n_keys = <uint32_t>cnp.PyArray_SIZE(array)
    row.keys_at = writer._put(cnp.PyArray_DATA(array), cnp.PyArray_NBYTES(array), 8)
    return 0


cdef int _encode_one(
    SlotWriter writer, object element, object keys, dict layouts, Row* row
) except -1:
    cdef SlotWalk walk
    cdef list arrays, objects, words = []
    cdef tuple spec
    cdef bytes layout, pickled = b""
    cdef list buffers = []
    cdef cnp.ndarray array
    cdef Py_ssize_t i, n_words, rest_bytes
    cdef uint64_t* to
    row.flags = 0
    if type(element) is bytes:  # The rest is the element itself.
        row.layout_at = row.layout_bytes = 0
        _put_keys(writer, keys, row)
        row.rest_bytes = PyBytes_GET_SIZE(element)
        row.rest_at = writer._put(PyBytes_AS_STRING(element), row.rest_bytes, 8)
        return 0
    walk = SlotWalk()
    spec = walk.spec(element, 0)
    arrays, objects = walk.arrays, walk.objects
    if spec is None:
        arrays = []
        objects = [element]
        spec = _OBJECT_SPEC
    for array in arrays:
        words.append(writer._place(array))
        for i in range(cnp.PyArray_NDIM(array)):
            words.append(cnp.PyArray_DIM(array, i))
    layout = (_layout if walk.plain else _new_layout)(spec, len(words))
    if layout not in layouts:
        layouts[layout] = writer._put(
            PyBytes_AS_STRING(layout), PyBytes_GET_SIZE(layout), 8
        )
    if objects:
        pickled, buffers = _dump(objects)
    words.append(len(buffers))
    for raw in buffers:
        words.append(writer._place(np.frombuffer(raw, np.uint8)))
        words.append(raw.nbytes)
    n_words = len(words)
    rest_bytes = 8 * n_words + PyBytes_GET_SIZE(pickled)
    row.layout_at = layouts[layout]
    row.layout_bytes = <uint32_t>PyBytes_GET_SIZE(layout)
    _put_keys(writer, keys, row)
    row.rest_at = writer._take(rest_bytes, 8)
    row.rest_bytes = rest_bytes
    to = <uint64_t*>writer._at(row.rest_at, rest_bytes)
    if to is not NULL:
        for i in range(n_words):
            to[i] = words[i]
        memcpy(to + n_words, PyBytes_AS_STRING(pickled), PyBytes_GET_SIZE(pickled))
    return 0


cdef int _finish_row(
    SlotWriter writer, Py_ssize_t offset, Row* row, object position, Py_ssize_t room
) except -1:
    """Write a row and its position, if they fit into the slot."""
    cdef Py_ssize_t i, n = len(position)
    cdef char* to = writer._at(offset, sizeof(Row) + 8 * room)
    cdef int64_t* numbers = <int64_t*>(to + sizeof(Row))
    if to is NULL:
        return 0
    row.position_len = <uint32_t>n
    memcpy(to, row, sizeof(Row))
    if type(position) is tuple:
        for i in range(n):
            numbers[i] = (<tuple>position)[i]
    else:
        position = np.ascontiguousarray(position, np.int64)
        memcpy(numbers, cnp.PyArray_DATA(<cnp.ndarray>position), 8 * n)
    memset(numbers + n, 0, 8 * (room - n))
    return 0


cdef int _encode_all(SlotWriter writer, list outputs, tuple failure) except -1:
    cdef Py_ssize_t n = len(outputs) + (failure is not None), at, room = 0, width
    cdef dict layouts = {}
    cdef Row row
    cdef Header header
    cdef bytes error
    cdef char* to
    writer._placed.clear()
    writer._placed_end = 0
    for _, _, position in outputs if failure is None else [*outputs, (0, *failure)]:
        room = max(room, <Py_ssize_t>len(position))
    width = sizeof(Row) + 8 * room
    header.magic = MAGIC
    header.outputs = n
    header.position_room = room
    header.status = 0 if failure is None else ERROR
    header.table = at = writer._take(n * width, 8)
    for element, keys, position in outputs:
        _encode_one(writer, element, keys, layouts, &row)
        _finish_row(writer, at, &row, position, room)
        at += width
    if failure is not None:
        error, position = failure
        row = Row(0, 0, ERROR, 0, PyBytes_GET_SIZE(error), 0, 0, 0)
        row.rest_at = writer._put(PyBytes_AS_STRING(error), row.rest_bytes, 8)
        _finish_row(writer, at, &row, position, room)
    to = writer._at(0, sizeof(Header))
    if to is not NULL:
        memcpy(to, &header, sizeof(Header))
    return 0


def encode(SlotWriter writer not None, list outputs not None, tuple failure):
    """Write all outputs of a unit; return the number of used bytes of the slot.

    Args:
        writer: The slot.  Arrays that were allocated in it are not copied.
        outputs: Tuples (element, record keys, position after the element).
        failure: The error that ended the unit early, as bytes, and the position after
            it; None if the unit is complete.

    Positions are tuples of ints or int64 arrays of shape (n,); n may differ.

    Raises:
        SlotTooSmallError: The slot is too small.  The writer is unchanged.
        Exception: Pickling an element raised it.  The writer is unchanged.
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
        raise SlotTooSmallError(needed)
    return writer.used
