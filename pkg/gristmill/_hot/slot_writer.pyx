# cython: boundscheck=False, wraparound=False
"""Writes outputs into a slot of shared memory.

docs/formats/slot.md describes `Row` and its rest, the part of an output after the row.
"""
cimport cython
cimport numpy as cnp
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector as cpp_vector

from gristmill._hot.slot_format cimport (
    CACHE_LIMIT, ERROR, HEADER_BYTES, MAGIC, OBJECT, Header, Row, make_array,
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
cdef Py_ssize_t MAX_ARRAY_BYTES = 1 << 62
cdef tuple _OBJECT_SPEC = (OBJECT,)


@cython.final
cdef class SlotWriter:
    """Allocates the memory of one slot from its start.  Not thread-safe.

    The caller owns the slot, which must exist as long as the arrays from `empty`.

    Args:
        address: The address of the slot.
        capacity: The size of the slot in bytes.
    """

    cdef readonly uintptr_t address
    cdef readonly Py_ssize_t capacity
    # The number of bytes allocated.
    cdef readonly Py_ssize_t used
    # The offsets at which each output array in the slot begins and ends, in turn, and
    # the largest of these ends.
    cdef cpp_vector[Py_ssize_t] _array_bounds
    cdef Py_ssize_t _last_array_end

    def __init__(self, uintptr_t address, Py_ssize_t capacity):
        self.address = address
        self.capacity = capacity
        self.used = HEADER_BYTES

    def empty(self, shape, dtype):
        """Return an uninitialized array in the slot.

        It begins at a multiple of 64 bytes, as docs/formats/slot.md requires.
        If the slot is full, or the array contains objects, it is in private memory.
        Then `encode` copies or pickles it.
        """
        cdef tuple sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        cdef cnp.dtype descr
        cdef Py_ssize_t used_before = self.used, offset
        descr = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
        if PyDataType_REFCHK(descr):
            return np.empty(shape, descr)
        nbytes = descr.itemsize
        for size in sizes:
            if size < 0:
                raise ValueError("negative dimensions are not allowed")
            nbytes *= operator.index(size)
        if nbytes > MAX_ARRAY_BYTES:
            raise ValueError("array is too big")  # Like NumPy.
        offset = self._allocate(nbytes, 64)
        if self.used > self.capacity:
            self.used = used_before
            return np.empty(shape, descr)
        return self._array(offset, sizes, descr)

    cdef object _array(self, Py_ssize_t offset, tuple shape, cnp.dtype descr):
        """Return an array on memory of the slot, which keeps this object alive."""
        cdef cnp.npy_intp sizes[MAX_DIMENSIONS]
        cdef cnp.ndarray array
        cdef int n = <int>len(shape), i
        if n > MAX_DIMENSIONS:
            raise ValueError(
                f"Arrays must have at most {MAX_DIMENSIONS} dimensions, got {n}."
            )
        for i in range(n):
            sizes[i] = shape[i]
        array = make_array(self.address + offset, descr, n, sizes)
        cnp.set_array_base(array, self)
        return array

    cdef Py_ssize_t _allocate(self, Py_ssize_t nbytes, Py_ssize_t align) noexcept:
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

    cdef Py_ssize_t _append(
        self, const void* data, Py_ssize_t nbytes, Py_ssize_t align
    ) noexcept:
        """Copy bytes into the slot if they fit, and return their offset.

        If they do not fit, they only count in `used`, so that it becomes the size that
        the slot must have.
        """
        cdef Py_ssize_t offset = self._allocate(nbytes, align)
        cdef char* target = self._at(offset, nbytes)
        if target is not NULL and nbytes:
            memcpy(target, data, nbytes)
        return offset

    cdef bint _reserve(self, Py_ssize_t begin, Py_ssize_t end) noexcept:
        """Reserve the bytes [begin, end) of the slot for an output array in them.

        Returns False, and reserves nothing, if another output array overlaps them.
        """
        cdef size_t i
        if begin < self._last_array_end:
            for i in range(0, self._array_bounds.size(), 2):
                if begin < self._array_bounds[i + 1] and self._array_bounds[i] < end:
                    return False
        self._array_bounds.push_back(begin)
        self._array_bounds.push_back(end)
        self._last_array_end = max(self._last_array_end, end)
        return True

    cdef Py_ssize_t _place_array(self, cnp.ndarray array) except -1:
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
                and self._reserve(data - self.address, data - self.address + nbytes)
            ):
                return data - self.address
            return self._append(<void*>data, nbytes, 64)
        offset = self._allocate(nbytes, 64)
        if self._at(offset, nbytes) is not NULL:
            self._array(offset, (<object>array).shape, array.descr)[...] = array
        return offset


def _dump(value):
    """Pickle with large buffers out of band; return ``(bytes, buffers)``.

    ``buffers`` is a list of memoryviews.
    """
    buffers = []
    read_only = False

    def keep_in_band(buffer):
        nonlocal read_only
        view = buffer.raw()
        read_only = read_only or view.readonly
        if view.nbytes < _IN_BAND_BYTES:
            return True
        buffers.append(view)
        return False

    try:
        pickled = pickle.dumps(value, 5, buffer_callback=keep_in_band)
        if read_only:  # Received arrays are writable, so pickle them as such.
            buffers.clear()
            pickled = writable_arrays.dumps(value, keep_in_band)
        return pickled, buffers
    except Exception:
        # This also pickles what `pickle` rejects, such as lambdas and open files.  The
        # module is slow to import and rarely needed.
        from gristmill._base import open_files

        buffers.clear()
        return open_files.dumps(value, keep_in_band), buffers


def _pickle_layout(spec, n_words):
    """Return the layout's bytes; `n_words` is the number of words for its arrays."""
    return _dump((n_words, spec))[0]


# A pipeline has few layouts, but keys that are made from data could create any number
# of them; hence the limit.
_cached_layout = functools.lru_cache(CACHE_LIMIT)(_pickle_layout)


cdef int _put_keys(SlotWriter writer, object keys, Row* row) except -1:
    """Write record keys, a sequence or an array of ints, and set the row's fields."""
    cdef cnp.ndarray array = np.ascontiguousarray(keys, np.int64)
    row.n_keys = <uint32_t>cnp.PyArray_SIZE(array)
    row.keys_at = writer._append(cnp.PyArray_DATA(array), cnp.PyArray_NBYTES(array), 8)
    return 0


cdef int _encode_one(
    SlotWriter writer, object element, object keys, dict layouts, Row* row
) except -1:
    """Write an element and its record keys; set the row, except for its position.

    `layouts` maps each layout that is in the slot to its offset.
    """
    cdef SlotWalk walk
    cdef list arrays, objects, rest_words = []
    cdef tuple spec
    cdef bytes layout, pickled = b""
    cdef list buffers = []
    cdef cnp.ndarray array
    cdef Py_ssize_t i, n_words, rest_bytes
    cdef uint64_t* target
    row.flags = 0
    if type(element) is bytes:  # The rest is the element itself.
        row.layout_at = row.layout_bytes = 0
        _put_keys(writer, keys, row)
        row.rest_bytes = PyBytes_GET_SIZE(element)
        row.rest_at = writer._append(PyBytes_AS_STRING(element), row.rest_bytes, 8)
        return 0
    walk = SlotWalk()
    spec = walk.make_spec(element, 0)
    arrays, objects = walk.arrays, walk.objects
    if spec is None:  # Pickle the element as a whole.
        arrays = []
        objects = [element]
        spec = _OBJECT_SPEC
    for array in arrays:
        rest_words.append(writer._place_array(array))
        for i in range(cnp.PyArray_NDIM(array)):
            rest_words.append(cnp.PyArray_DIM(array, i))
    # The cache would take a layout with the key 1 for one with the equal key True.
    layout = (_cached_layout if walk.has_str_keys else _pickle_layout)(
        spec, len(rest_words)
    )
    if layout not in layouts:
        layouts[layout] = writer._append(
            PyBytes_AS_STRING(layout), PyBytes_GET_SIZE(layout), 8
        )
    if objects:
        pickled, buffers = _dump(objects)
    rest_words.append(len(buffers))
    for view in buffers:
        rest_words.append(writer._place_array(np.frombuffer(view, np.uint8)))
        rest_words.append(view.nbytes)
    n_words = len(rest_words)
    rest_bytes = 8 * n_words + PyBytes_GET_SIZE(pickled)
    row.layout_at = layouts[layout]
    row.layout_bytes = <uint32_t>PyBytes_GET_SIZE(layout)
    _put_keys(writer, keys, row)
    row.rest_at = writer._allocate(rest_bytes, 8)
    row.rest_bytes = rest_bytes
    target = <uint64_t*>writer._at(row.rest_at, rest_bytes)
    if target is not NULL:
        for i in range(n_words):
            target[i] = rest_words[i]
        memcpy(target + n_words, PyBytes_AS_STRING(pickled), PyBytes_GET_SIZE(pickled))
    return 0


cdef int _finish_row(
    SlotWriter writer, Py_ssize_t offset, Row* row, object position,
    Py_ssize_t position_room,
) except -1:
    """Write a row and its position, padded with 0 to `position_room`, if they fit."""
    cdef Py_ssize_t i, n = len(position)
    cdef char* target = writer._at(offset, sizeof(Row) + 8 * position_room)
    cdef int64_t* position_words = <int64_t*>(target + sizeof(Row))
    if target is NULL:
        return 0
    row.position_len = <uint32_t>n
    memcpy(target, row, sizeof(Row))
    if type(position) is tuple:
        for i in range(n):
            position_words[i] = (<tuple>position)[i]
    else:
        position = np.ascontiguousarray(position, np.int64)
        memcpy(position_words, cnp.PyArray_DATA(<cnp.ndarray>position), 8 * n)
    memset(position_words + n, 0, 8 * (position_room - n))
    return 0


cdef int _encode_all(SlotWriter writer, list outputs, tuple failure) except -1:
    """Write a slot; see `encode`.  Bytes that do not fit are only counted."""
    cdef Py_ssize_t n = len(outputs) + (failure is not None)
    cdef Py_ssize_t row_at, position_room = 0, width
    cdef dict layouts = {}
    cdef Row row
    cdef Header header
    cdef bytes error
    cdef char* target
    writer._array_bounds.clear()
    writer._last_array_end = 0
    # `failure` has two items; the 0 makes it like an output.
    for _, _, position in outputs if failure is None else [*outputs, (0, *failure)]:
        position_room = max(position_room, <Py_ssize_t>len(position))
    width = sizeof(Row) + 8 * position_room
    header.magic = MAGIC
    header.outputs = n
    header.position_room = position_room
    header.status = 0 if failure is None else ERROR
    header.table = row_at = writer._allocate(n * width, 8)
    for element, keys, position in outputs:
        _encode_one(writer, element, keys, layouts, &row)
        _finish_row(writer, row_at, &row, position, position_room)
        row_at += width
    if failure is not None:
        error, position = failure
        memset(&row, 0, sizeof(Row))
        row.flags = ERROR
        row.rest_bytes = PyBytes_GET_SIZE(error)
        row.rest_at = writer._append(PyBytes_AS_STRING(error), row.rest_bytes, 8)
        _finish_row(writer, row_at, &row, position, position_room)
    target = writer._at(0, sizeof(Header))
    if target is not NULL:
        memcpy(target, &header, sizeof(Header))
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
    cdef Py_ssize_t used_before = writer.used, needed
    try:
        _encode_all(writer, outputs, failure)
    except BaseException:
        writer.used = used_before
        raise
    if writer.used > writer.capacity:
        needed = writer.used
        writer.used = used_before
        raise SlotTooSmallError(needed)
    return writer.used
