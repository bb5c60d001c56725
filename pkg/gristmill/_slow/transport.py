"""Writes outputs into a slot of shared memory and reads them back.

The twin of ``gristmill._hot.transport``; both write and read the same bytes.

A slot begins with a header: the letters ``GMS1``, then u32 outputs, u32 V, u32 status
(1 if the last output is an error) and the u64 offset of the table.  The table has a
row for each output: u64 offset and u32 bytes of the layout, u32 flags (1 for an
error), u64 offset and u64 bytes of the rest, u64 offset and u32 count of the record
keys (int64), u32 N, and V int64, the first N of which are the position after this
output.  Offsets are from the start of the slot; everything is little-endian.

A layout is a pickle of ``(words, spec)``.  It says which containers, dtypes
and numbers of dimensions there are, so one layout serves all outputs of a pipeline.
The rest holds `words` u64 (for each array its offset and dimensions), then the number
of out-of-band buffers, offset and bytes of each, and a pickle of what is neither an
array nor a container of arrays.
"""

from __future__ import annotations

import ctypes
import math
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._hot.signals import NeedSpace as NeedSpace

MAGIC = int.from_bytes(b"GMS1", "little")
HEADER = struct.Struct("<4IQ")
ROW = struct.Struct("<QIIQQQII")
HEADER_BYTES = 64
ERROR = 1
ARRAY, OBJECT, DICT, LIST, TUPLE = range(5)
CONTAINERS: dict[type, int] = {dict: DICT, list: LIST, tuple: TUPLE}
MAX_DEPTH = 32
LARGEST = 1 << 62
# Buffers below this size are cheaper inside the pickle than beside it.
IN_BAND_BYTES = 4096
# All copies of an output together may take this many times the limit of one.
COPIES = 4

Int64Array = npt.NDArray[np.int64]
Vector = tuple[int, ...] | Int64Array


class SlotWriter:
    """Hands out the memory of one slot from its start.

    Args:
        address: Where the slot begins.
        capacity: Its size in bytes.
    """

    def __init__(self, address: int, capacity: int) -> None:
        self.address = address
        self.capacity = capacity
        self.used = HEADER_BYTES

    def alloc(self, nbytes: int, align: int = 64) -> int:
        """Return the offset of nbytes unused bytes; align is a power of 2.

        Raises:
            NeedSpace: The slot is too small.
        """
        before = self.used
        if nbytes < 0 or nbytes > LARGEST or align < 1 or align & (align - 1):
            raise ValueError(f"cannot allocate {nbytes} bytes aligned to {align}")
        offset = self.take(nbytes, align)
        if self.used > self.capacity:
            needed, self.used = self.used, before
            raise NeedSpace(needed)
        return offset

    def take(self, nbytes: int, align: int) -> int:
        """Like alloc, but goes on beyond the end, to find out what is needed."""
        offset = (self.used + align - 1) & -align
        self.used = offset + nbytes
        return offset

    def empty(
        self, shape: int | tuple[int, ...], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """Return an array in the slot, not filled.

        Raises:
            NeedSpace: The slot is too small.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            return np.empty(shape, dtype)
        nbytes = dtype.itemsize * math.prod(shape)
        if min(shape, default=0) < 0:
            raise ValueError("negative dimensions are not allowed")
        if nbytes > LARGEST:
            raise ValueError("array is too big")
        offset = self.alloc(nbytes)
        return np.ndarray(shape, dtype, memory(self.address + offset, nbytes))

    def put(self, data: Any, align: int) -> int:
        """Copy bytes into the slot if they fit; returns their offset."""
        view = memoryview(data).cast("B")
        offset = self.take(view.nbytes, align)
        self.write(offset, view)
        return offset

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Store bytes at an offset, unless it is beyond the end."""
        if offset + len(data) <= self.capacity:
            memory(self.address + offset, len(data))[:] = data

    def place(self, array: npt.NDArray[Any]) -> int:
        """Offset of an array that lies in the slot, or of a copy made there."""
        offset = int(array.__array_interface__["data"][0]) - self.address
        inside = offset >= 0 and offset + array.nbytes <= self.capacity
        if array.nbytes == 0:
            return 0
        if inside and array.flags.c_contiguous:
            return offset
        return self.put(np.ascontiguousarray(array).view(np.ndarray).tobytes(), 64)


def encode(
    writer: SlotWriter,
    outputs: list[tuple[Any, Int64Array, Vector]],
    failure: tuple[bytes, Vector] | None,
) -> int:
    """Write all outputs of a unit; returns the bytes of the slot that are used.

    Args:
        writer: The slot.  Arrays that were made in it are not copied.
        outputs: For each the element, its record keys and the position after it.
        failure: What ended the unit early, in bytes, and the position after it.

    Positions are tuples of ints or int64 arrays of shape (n,), each of its own n.

    Raises:
        NeedSpace: The slot is too small; the writer is as it was before.
        Exception: Whatever pickling an element raised.
    """
    before = writer.used
    vectors = [vector for _, _, vector in outputs]
    vectors += [failure[1]] if failure else []
    width = max(map(len, vectors), default=0)
    table = writer.take(len(vectors) * (ROW.size + 8 * width), 8)
    layouts: dict[bytes, int] = {}
    rows = []
    try:
        rows += [_encode_one(writer, *output, layouts) for output in outputs]
    except BaseException:
        writer.used = before
        raise
    if failure:
        rest = writer.put(failure[0], 8)
        rows.append((0, 0, ERROR, rest, len(failure[0]), 0, 0))
    if writer.used > writer.capacity:
        needed, writer.used = writer.used, before
        raise NeedSpace(needed)
    data = b"".join(
        ROW.pack(*row, len(vector)) + _bytes_of(vector).ljust(8 * width, b"\0")
        for row, vector in zip(rows, vectors, strict=True)
    )
    writer.write(table, data)
    header = HEADER.pack(MAGIC, len(vectors), width, ERROR if failure else 0, table)
    writer.write(0, header)
    return writer.used


def decode(
    address: int,
    used: int,
    index: int,
    base_factory: Callable[[], Any],
    copy_limit: int,
) -> tuple[Any, Int64Array, Int64Array]:
    """Read one output: ``(element, keys, vector)``.

    Args:
        address: Where the slot begins.
        used: How many bytes of it were committed; nothing beyond is read.
        index: Which output of the unit.
        base_factory: Makes the SlotView that keeps the slot; called once, and only
            if something views it.
        copy_limit: Leaves up to this many bytes are copied out, four times this
            much in one output.

    The element of an error is its bytes.  Arrays are writable.

    Raises:
        ValueError: The slot does not hold what it must.
    """
    reader = Reader(address, used, base_factory, copy_limit)
    magic, count, width, _, table = reader.unpack(HEADER, 0)
    if magic != MAGIC or not 0 <= index < count:
        raise ValueError(f"output {index} is not in the slot")
    at = table + index * (ROW.size + 8 * width)
    row = reader.unpack(ROW, at)
    layout_at, layout_bytes, flags, rest_at, rest_bytes, keys_at, n_keys, length = row
    if length > width:
        raise ValueError(f"a position of {length} integers in a row with {width}")
    vector = np.frombuffer(reader.bytes_at(at + ROW.size, 8 * length), np.int64)
    keys = np.frombuffer(reader.bytes_at(keys_at, 8 * n_keys), np.int64)
    rest = reader.bytes_at(rest_at, rest_bytes)
    if flags & ERROR:
        return bytes(rest), keys, vector
    n_words, spec = pickle.loads(reader.bytes_at(layout_at, layout_bytes))
    words = struct.unpack_from(f"<{n_words + 1}Q", rest)
    n_buffers = words[-1]
    buffers = struct.unpack_from(f"<{2 * n_buffers}Q", rest, 8 * len(words))
    pickled = rest[8 * (len(words) + 2 * n_buffers) :]
    views = [
        reader.buffer(buffers[i], buffers[i + 1]) for i in range(0, 2 * n_buffers, 2)
    ]
    objects = pickle.loads(pickled, buffers=views) if pickled else []
    element = reader.build(spec, iter(words), iter(objects))
    return element, keys, vector


class Reader:
    """Takes the parts of one output out of a slot, within its committed bytes."""

    def __init__(
        self, address: int, used: int, base_factory: Callable[[], Any], copy_limit: int
    ) -> None:
        self._address = address
        self._used = used
        self._base_factory = base_factory
        self._base: Any = None
        self._copy_limit = copy_limit
        self._copies_left = COPIES * copy_limit

    def unpack(self, layout: struct.Struct, offset: int) -> tuple[Any, ...]:
        """The fields of a struct at an offset."""
        return layout.unpack(self.bytes_at(offset, layout.size))

    def bytes_at(self, offset: int, nbytes: int) -> bytearray:
        """A copy of bytes of the slot."""
        return bytearray(memory(self._address + self._inside(offset, nbytes), nbytes))

    def buffer(self, offset: int, nbytes: int) -> Any:
        """A writable buffer with bytes of the slot: a copy of few, a view of many."""
        if nbytes <= min(self._copy_limit, self._copies_left):
            self._copies_left -= nbytes
            return self.bytes_at(offset, nbytes)
        address = self._address + self._inside(offset, nbytes)
        if self._base is None:
            self._base = self._base_factory()
        return memoryview(self._base.slice(address, nbytes))

    def build(self, spec: Any, words: Any, objects: Any) -> Any:
        """Put an element together."""
        kind = spec[0]
        if kind == OBJECT:
            return next(objects)
        if kind == ARRAY:
            offset = next(words)
            shape = tuple(next(words) for _ in range(spec[2]))
            nbytes = spec[1].itemsize * math.prod(shape)
            if not nbytes:
                return np.empty(shape, spec[1])
            return np.ndarray(shape, spec[1], self.buffer(offset, nbytes))
        items = [self.build(child, words, objects) for child in spec[-1]]
        if kind == DICT:
            return dict(zip(spec[1], items, strict=True))
        return items if kind == LIST else tuple(items)

    def _inside(self, offset: int, nbytes: int) -> int:
        if offset + nbytes > self._used:
            raise ValueError(
                f"{nbytes} bytes at {offset} are beyond the {self._used} of the slot"
            )
        return offset


def memory(address: int, nbytes: int) -> Any:
    """A memoryview of plain memory, which somebody else keeps."""
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")


def dump(thing: Any) -> tuple[bytes, list[Any]]:
    """Pickle with large buffers beside it: ``(bytes, buffers)``."""
    buffers: list[Any] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < IN_BAND_BYTES:
            return True
        buffers.append(raw)
        return False

    try:
        return pickle.dumps(thing, 5, buffer_callback=keep_in_band), buffers
    except Exception:
        from gristmill._base import open_files  # Slow to import, rarely needed.

        buffers.clear()
        return open_files.dumps(thing, keep_in_band), buffers


class TooDeep(Exception):
    """Containers lie in each other without end, or nearly."""


def _encode_one(
    writer: SlotWriter,
    element: Any,
    keys: Int64Array,
    _: Vector,
    layouts: dict[bytes, int],
) -> tuple[int, ...]:
    """All of an output's row but the length of its position."""
    arrays: list[npt.NDArray[Any]] = []
    objects: list[Any] = []
    try:
        spec = _walk(element, arrays, objects, 0)
    except TooDeep:
        arrays, objects, spec = [], [element], (OBJECT,)
    words: list[int] = []
    for array in arrays:
        words += [writer.place(array), *array.shape]
    layout = dump_layout((len(words), spec))
    if layout not in layouts:
        layouts[layout] = writer.put(layout, 8)
    pickled, buffers = dump(objects) if objects else (b"", [])
    words.append(len(buffers))
    for raw in buffers:
        words += [writer.place(np.frombuffer(raw, np.uint8)), raw.nbytes]
    keys_at = writer.put(np.ascontiguousarray(keys, np.int64).tobytes(), 8)
    rest = struct.pack(f"<{len(words)}Q", *words) + pickled
    rest_at = writer.put(rest, 8)
    layout_at = layouts[layout]
    return layout_at, len(layout), 0, rest_at, len(rest), keys_at, len(keys)


def _bytes_of(vector: Vector) -> bytes:
    if isinstance(vector, tuple):
        return struct.pack(f"<{len(vector)}q", *vector)
    return np.ascontiguousarray(vector, np.int64).tobytes()


def dump_layout(layout: tuple[int, Any]) -> bytes:
    """Pickle a layout, whatever its keys are."""
    pickled, _ = dump(layout)
    return pickled


def goes_in_place(array: npt.NDArray[Any]) -> bool:
    """Whether an array's bytes alone say what is in it."""
    dtype = array.dtype
    return not dtype.hasobject and dtype.itemsize > 0 and dtype.metadata is None


def _walk(
    tree: Any, arrays: list[npt.NDArray[Any]], objects: list[Any], depth: int
) -> tuple[Any, ...]:
    """The spec of a tree; its arrays and the rest of its leaves are appended."""
    if type(tree) is np.ndarray and goes_in_place(tree):
        arrays.append(tree)
        return ARRAY, tree.dtype, tree.ndim
    kind = CONTAINERS.get(type(tree), OBJECT)
    if kind == OBJECT:
        objects.append(tree)
        return (OBJECT,)
    if depth == MAX_DEPTH:
        raise TooDeep
    before = len(arrays), len(objects)
    parts = list(tree.values()) if kind == DICT else tree
    children = tuple([_walk(part, arrays, objects, depth + 1) for part in parts])
    if len(arrays) == before[0]:
        # Without arrays the pickle of the whole is shorter than that of its parts.
        objects[before[1] :] = [tree]
        return (OBJECT,)
    return (DICT, tuple(tree), children) if kind == DICT else (kind, children)
