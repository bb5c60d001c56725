"""Pickles objects with the memory of their tensors and arrays out of band.

This replaces torch's ``ForkingPickler``, and uses its table of reducers.  The only
difference is the memory of tensors: it is not moved to shared files but returned to
the caller, as the buffers of pickle protocol 5.  If pickling fails, cloudpickle is used
instead, for classes from ``__main__`` and lambdas.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import io
import itertools
import operator
import pickle
import sys
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch
import torch.multiprocessing  # Registers torch's reducers with ForkingPickler.

from gristmill._base import open_files
from gristmill._base.writable_arrays import reduce_array
from gristmill._torch import private

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
PROTOCOL = 5
# Buffers of one pool share a blob if they overlap.  A buffer without a pool has a blob
# of its own.
Pool = int | None
# Passed explicitly, because the user may have set another default device.
CPU = torch.device("cpu")
# Buffers as parts of blobs: int64 of shape (n, 3), each row (blob, offset, bytes).
Places = npt.NDArray[np.int64]
Pickled = tuple[memoryview, list[Bytes], Places]
# Storages by the addresses of the blobs that they view.
Storages = dict[int, torch.UntypedStorage]


def array_of(tensor: torch.Tensor) -> Array | None:
    """Return an array that views a plain row-major tensor; None for other tensors."""
    try:
        array: Array = tensor.numpy()
    except (RuntimeError, TypeError, ValueError):
        # It requires grad, or NumPy does not support its device, layout or dtype.
        return None
    shape = array.shape
    if 0 not in shape and 1 not in shape and array.flags.c_contiguous:
        return array  # Without dimensions of size 1, whose strides are arbitrary.
    return array if tensor.stride() == _strides_of(tensor.shape) else None


@functools.lru_cache(maxsize=1024)
def _strides_of(shape: torch.Size) -> tuple[int, ...] | None:
    """Return the row-major strides of a shape, in elements; None for an empty shape."""
    if 0 in shape:
        return None
    products = itertools.accumulate(reversed(shape), operator.mul, initial=1)
    # Without the last product, which is the number of elements.
    return tuple(products)[-2::-1]


def reduce(thing: Any) -> Any:
    """Return a tensor's or storage's reduced value; NotImplemented for other types."""
    kind = type(thing)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return _reduce_tensor(thing)
    if kind is torch.UntypedStorage and thing.device.type == "cpu":
        return make_storage, (_buffer_of(thing, 0, thing.nbytes()),)
    return NotImplemented


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    if tensor.is_quantized:
        # Torch's queue loses the quantizer.
        return tensor.__reduce_ex__(PROTOCOL)
    strided = tensor.layout is torch.strided and not tensor.is_nested
    if not strided or tensor.device.type != "cpu":
        return NotImplemented
    if tensor.requires_grad:
        if not tensor.is_leaf:
            return NotImplemented  # Torch's reducer raises an error.
        private.warn_if_has_hooks(tensor)
    size, stride = tuple(tensor.size()), tensor.stride()
    buffer = None
    if tensor.numel():
        # The position of the last element, relative to the first.
        last = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        begin = tensor.storage_offset() * tensor.itemsize
        nbytes = (last + 1) * tensor.itemsize
        buffer = _buffer_of(tensor.untyped_storage(), begin, nbytes)
    lazy_bits = tensor.is_conj(), tensor.is_neg()
    is_parameter = type(tensor) is torch.nn.Parameter
    geometry = (tensor.dtype, size, stride)
    requires_grad = tensor.requires_grad
    return make_tensor, (buffer, geometry, lazy_bits, requires_grad, is_parameter)


def _reduce_of_batch(thing: Any) -> Any:
    """Return the reduced value of a part of a batch, like `reduce`."""
    return reduce_array(thing) if type(thing) is np.ndarray else reduce(thing)


class _Pickler(ForkingPickler):
    """Pickles functions and classes by name."""

    reducer_override = staticmethod(_reduce_of_batch)


class CloudPickler(open_files.Pickler):
    """Pickles functions and classes by value if they cannot be imported by name."""

    def __init__(
        self, file: io.BytesIO, protocol: int, fix_imports: bool, keep: Any
    ) -> None:
        # The arguments are those of `pickle.Pickler`; `keep` is its `buffer_callback`.
        cloudpickle_table = cloudpickle.Pickler.dispatch_table
        torch_table = ForkingPickler(io.BytesIO()).dispatch_table
        # Set before the base class reads it.
        self.dispatch_table = collections.ChainMap(cloudpickle_table, torch_table)
        super().__init__(file, protocol, keep)

    def reducer_override(self, thing: Any) -> Any:
        reduced = reduce(thing)
        return super().reducer_override(thing) if reduced is NotImplemented else reduced


class _BatchCloudPickler(CloudPickler):
    """Pickles classes of the user's ``__main__`` by name, for the parent process.

    Sending such a class by value would reset its attributes in the parent to those at
    the start of the worker.
    """

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, type) and thing in _classes_of_main:
            return _class_of_main, (thing.__qualname__,)
        if type(thing) is np.ndarray:
            return _reduce_of_batch(thing)
        return super().reducer_override(thing)


# Classes of the user's ``__main__`` that this process received by value.
_classes_of_main: weakref.WeakSet[type] = weakref.WeakSet()


def receive_class(make: Callable[..., type], arguments: tuple[Any, ...]) -> type:
    """Make a class that cloudpickle sent by value, and register it, in a worker."""
    cls = make(*arguments)
    if cls.__module__ == "__main__" and "<locals>" not in cls.__qualname__:
        _classes_of_main.add(cls)
    return cls


def _class_of_main(name: str) -> Any:
    return operator.attrgetter(name)(sys.modules["__main__"])


def dumps(thing: Any) -> Pickled:
    """Pickle a batch; return the pickle, and the blobs and the places for `loads`.

    The blobs contain the memory of the batch's storages, each byte once, and of its
    arrays.  Memory that torch's queue would send twice is in two blobs, so that it
    arrives as two separate copies.

    Raises:
        Exception: The error that pickling raised.
    """
    with contextlib.suppress(Exception):
        return dump_with(thing, _Pickler, _pool_of)
    return dump_with(thing, _BatchCloudPickler, _pool_of)


def loads(pickled: Any, blobs: list[Bytes], places: Places) -> Any:
    """Unpickle an object whose tensors and arrays view the blobs."""
    buffers = [blobs[blob][at : at + size] for blob, at, size in places.tolist()]
    return pickle.loads(pickled, buffers=buffers)


def dump_with(
    thing: Any,
    pickler: type[ForkingPickler | CloudPickler],
    pool_of: Callable[[Any], Pool],
) -> Pickled:
    """Pickle a thing by a pickler, like `dumps`.

    `pool_of` returns the pool of a buffer from the owner of the buffer's memory.
    """
    file = io.BytesIO()
    buffers: list[Bytes] = []
    pools: list[Pool] = []

    def add_buffer(buffer: pickle.PickleBuffer) -> None:
        raw = buffer.raw()
        buffers.append(np.frombuffer(raw, np.uint8))
        pools.append(pool_of(raw.obj))

    pickler(file, PROTOCOL, True, add_buffer).dump(thing)
    return file.getbuffer(), *_merge(buffers, pools)


def _pool_of(owner: Any) -> Pool:
    """Return the pool of a batch's buffer, whose memory belongs to `owner`."""
    if type(owner) is _StorageMemory:
        return id(owner.storage)
    # The memory of other owners, such as Arrow's, is read-only, so copies may share it.
    return None if isinstance(owner, np.ndarray | bytearray) else 0


def _merge(buffers: list[Bytes], pools: list[Pool]) -> tuple[list[Bytes], Places]:
    """Return blobs with the memory of all buffers, and the place of each buffer.

    Each byte of a pool is in exactly one blob, so tensors that share memory share it
    again after `loads`.
    """
    blobs: list[Bytes] = []
    places = [(0, 0, 0)] * len(buffers)
    members_by_pool: dict[int, list[int]] = {}
    for i, (buffer, pool) in enumerate(zip(buffers, pools, strict=True)):
        if pool is None:
            places[i] = len(blobs), 0, buffer.nbytes
            blobs.append(buffer)
        else:
            members_by_pool.setdefault(pool, []).append(i)
    for members in members_by_pool.values():
        _add_pool(buffers, members, blobs, places)
    return blobs, np.array(places, np.int64).reshape(-1, 3)


def _add_pool(
    buffers: list[Bytes],
    members: list[int],
    blobs: list[Bytes],
    places: list[tuple[int, int, int]],
) -> None:
    """Append the blobs of one pool, and set the places of its members.

    `members` are the positions of the pool's buffers in `buffers` and `places`.
    """
    # The address and the number of bytes of each member.
    spans = {i: (buffers[i].ctypes.data, buffers[i].nbytes) for i in members}
    groups: list[list[int]] = []  # Overlapping members, by address.
    end = 0
    for i in sorted(members, key=spans.__getitem__):
        begin, nbytes = spans[i]
        if begin >= end:
            groups.append([])
        groups[-1].append(i)
        end = max(end, begin + nbytes)
    for group in groups:
        first = spans[group[0]][0]
        for i in group:
            begin, nbytes = spans[i]
            places[i] = len(blobs), begin - first, nbytes
        owners = [buffers[i] for i in group]
        end = max(sum(spans[i]) for i in group)
        is_single = len(group) == 1
        blobs.append(owners[0] if is_single else _view_memory(first, end, owners))


def make_tensor(
    buffer: Any,
    geometry: tuple[torch.dtype, tuple[int, ...], tuple[int, ...]],
    lazy_bits: tuple[bool, bool],
    requires_grad: bool,
    is_parameter: bool,
    storages: Storages | None = None,
) -> torch.Tensor:
    """Return a tensor that views a buffer.

    Args:
        buffer: None if the tensor has no elements.
        geometry: Its dtype, size and strides.
        lazy_bits: Whether its conjugate and its negative bit are set.
        requires_grad: Whether it requires a gradient.
        is_parameter: Whether it is a `torch.nn.Parameter`.
        storages: Storages that it may share with other tensors; None for a storage of
            its own.
    """
    dtype, size, stride = geometry
    if buffer is None:
        tensor = torch.empty_strided(size, stride, dtype=dtype, device=CPU)
    else:
        tensor = torch.empty(0, dtype=dtype, device=CPU)
        storage, begin = _storage_of(buffer, storages, dtype.itemsize)
        tensor.set_(storage, begin, size, stride)
    is_conjugate, is_negative = lazy_bits
    tensor = tensor.conj() if is_conjugate else tensor
    tensor = private.neg_view(tensor) if is_negative else tensor
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_() if requires_grad else tensor


def make_storage(buffer: Any) -> torch.UntypedStorage:
    """Return a storage that views a buffer."""
    memory = np.frombuffer(buffer, np.uint8)
    return torch.from_numpy(memory).untyped_storage()


def _storage_of(
    buffer: Any, storages: Storages | None, itemsize: int
) -> tuple[torch.UntypedStorage, int]:
    """Return the storage of a tensor, and the tensor's offset in it, in elements."""
    if storages is not None:
        blob = buffer.base
        address = blob.ctypes.data
        offset = buffer.ctypes.data - address
        if offset % itemsize == 0:
            if address not in storages:
                storages[address] = make_storage(blob)
            return storages[address], offset // itemsize
    return make_storage(buffer), 0


class _StorageMemory(np.ndarray[Any, Any]):
    """Bytes of a storage; the type distinguishes them from other memory."""

    storage: torch.UntypedStorage


def _buffer_of(
    storage: torch.UntypedStorage, begin: int, nbytes: int
) -> pickle.PickleBuffer:
    """Return a buffer of bytes of a storage; it keeps the storage alive."""
    view = torch.empty(0, dtype=torch.uint8, device=CPU)
    array = view.set_(storage, begin, (nbytes,), (1,)).numpy()
    memory: Any = array.view(_StorageMemory)
    memory.storage = storage
    return pickle.PickleBuffer(memory)


def _view_memory(begin: int, end: int, owners: Sequence[Array]) -> Bytes:
    """Return the bytes from address `begin` to `end`; they keep `owners` alive."""
    memory: Any = (ctypes.c_ubyte * (end - begin)).from_address(begin)
    memory.owners = owners
    return np.frombuffer(memory, np.uint8)
