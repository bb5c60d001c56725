"""Pickles objects with the memory of their tensors and arrays beside the pickle.

The counterpart of torch's ``ForkingPickler``, and what that does to an object is done
here, too: its table of reducers is used.  Only the memory of tensors goes another
way: it is not moved to shared files but given to the caller, as the buffers of pickle
protocol 5.  Where that pickle fails, cloudpickle takes its place, for classes from
``__main__`` and lambdas.
"""

from __future__ import annotations

import collections
import ctypes
import io
import pickle
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch
import torch.multiprocessing  # Registers torch's reducers with ForkingPickler.
from torch.utils.hooks import warn_if_has_hooks

Bytes = npt.NDArray[np.uint8]
PROTOCOL = 5
# Buffers as parts of blobs: int64 of shape (n, 3), each row (blob, offset, bytes).
Places = npt.NDArray[np.int64]
APART: Places = np.empty((0, 3), np.int64)


class TensorReducing:
    """What a pickler must do with tensors; mix it into a pickler class."""

    def reducer_override(self, thing: Any) -> Any:
        """How to pickle an object; NotImplemented for "as ever"."""
        kind = type(thing)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            return self.reduce_tensor(thing)
        if kind is torch.UntypedStorage and thing.device.type == "cpu":
            return make_storage, (_buffer_of(thing, 0, thing.nbytes()),)
        return NotImplemented

    def reduce_tensor(self, tensor: torch.Tensor) -> Any:
        """How to pickle a tensor."""
        if tensor.device.type != "cpu" or tensor.is_nested or tensor.is_sparse:
            return NotImplemented
        if tensor.layout is not torch.strided:
            return NotImplemented
        if tensor.is_quantized:
            # Torch's queue loses the quantizer.
            return tensor.__reduce_ex__(PROTOCOL)
        if tensor.requires_grad:
            if not tensor.is_leaf:
                return NotImplemented  # Torch refuses it, and says why.
            warn_if_has_hooks(tensor)
        size, stride = tuple(tensor.size()), tensor.stride()
        buffer = None
        if tensor.numel():
            last = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
            begin = tensor.storage_offset() * tensor.itemsize
            nbytes = (last + 1) * tensor.itemsize
            buffer = _buffer_of(tensor.untyped_storage(), begin, nbytes)
        bits = tensor.is_conj(), tensor.is_neg()
        parameter = type(tensor) is torch.nn.Parameter
        geometry = (tensor.dtype, size, stride)
        return make_tensor, (buffer, geometry, bits, tensor.requires_grad, parameter)


class _Pickler(TensorReducing, ForkingPickler):
    """Pickles by name what can be found by name."""


class _CloudPickler(TensorReducing, cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions and classes by value, too, where nothing else will do."""

    def __init__(self, file: Any, buffer_callback: Any) -> None:
        super().__init__(file, PROTOCOL, buffer_callback)
        inherited = cloudpickle.Pickler.dispatch_table
        ours = ForkingPickler(io.BytesIO()).dispatch_table
        self.dispatch_table = collections.ChainMap(inherited, ours)


def dumps(thing: Any) -> tuple[memoryview, list[Bytes]]:
    """Pickle an object: ``(pickle, buffers)``.

    The buffers view the memory of its tensors and arrays; `loads` wants them all, in
    this order.

    Raises:
        Exception: Whatever pickling raised.
    """
    buffers: list[Bytes] = []

    def put_beside(buffer: pickle.PickleBuffer) -> bool:
        buffers.append(np.frombuffer(buffer.raw(), np.uint8))
        return False

    file = io.BytesIO()
    try:
        _Pickler(file, PROTOCOL, True, put_beside).dump(thing)
    except Exception:
        buffers.clear()
        file = io.BytesIO()
        _CloudPickler(file, put_beside).dump(thing)
    return file.getbuffer(), buffers


def loads(pickled: Any, buffers: Sequence[Any]) -> Any:
    """The object of a pickle; its tensors and arrays view the buffers."""
    return pickle.loads(pickled, buffers=buffers)


def merged(buffers: list[Bytes]) -> tuple[list[Bytes], Places]:
    """Blobs with the memory of all buffers, each byte once, and where each buffer is.

    Tensors with memory in common have it in common again when their buffers are taken
    out of the blobs.  Where there are none, the blobs are the buffers and the places
    `APART`.
    """
    spans = [(_address_of(buffer), buffer.nbytes) for buffer in buffers]
    order = sorted(range(len(buffers)), key=spans.__getitem__)
    groups: list[tuple[int, int, list[int]]] = []  # Begin, end and the buffers of each.
    for i in order:
        begin, nbytes = spans[i]
        if groups and begin < groups[-1][1]:
            first, end, members = groups.pop()
            groups.append((first, max(end, begin + nbytes), [*members, i]))
        else:
            groups.append((begin, begin + nbytes, [i]))
    if len(groups) == len(buffers):
        return buffers, APART
    places = np.empty((len(buffers), 3), np.int64)
    for blob, (first, _, members) in enumerate(groups):
        for i in members:
            places[i] = blob, spans[i][0] - first, spans[i][1]
    blobs = [
        _span(first, end - first, [buffers[i] for i in members])
        for first, end, members in groups
    ]
    return blobs, places


def make_tensor(
    buffer: Any,
    geometry: tuple[torch.dtype, tuple[int, ...], tuple[int, ...]],
    bits: tuple[bool, bool],
    requires_grad: bool,
    parameter: bool,
) -> torch.Tensor:
    """A tensor that views a buffer, which is None where it has no elements.

    Args:
        buffer: From its first to its last byte.
        geometry: Its dtype, size and strides.
        bits: Whether its conjugate and negative bits are set.
        requires_grad: Whether it does.
        parameter: Whether it is a ``torch.nn.Parameter``.
    """
    dtype, size, stride = geometry
    if buffer is None:
        tensor = torch.empty_strided(size, stride, dtype=dtype)
    else:
        tensor = torch.empty(0, dtype=dtype)
        tensor.set_(make_storage(buffer), 0, size, stride)
    conjugate, negative = bits
    tensor = tensor.conj() if conjugate else tensor
    tensor = torch._neg_view(tensor) if negative else tensor
    if parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_() if requires_grad else tensor


def make_storage(buffer: Any) -> torch.UntypedStorage:
    """A storage that views a buffer."""
    memory = np.frombuffer(buffer, np.uint8)
    return torch.from_numpy(memory).untyped_storage()


def _buffer_of(
    storage: torch.UntypedStorage, begin: int, nbytes: int
) -> pickle.PickleBuffer:
    """Bytes of a storage, which lives as long as the buffer does."""
    view = torch.empty(0, dtype=torch.uint8).set_(storage, begin, (nbytes,), (1,))
    memory: Any = view.numpy()
    return pickle.PickleBuffer(memory)


def _address_of(array: Bytes) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _span(address: int, nbytes: int, owners: list[Bytes]) -> Bytes:
    """Memory that several arrays make up together."""
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(address)
    memory.owners = owners
    return np.frombuffer(memory, np.uint8)
