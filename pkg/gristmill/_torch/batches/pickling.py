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
from torch.utils.hooks import warn_if_has_hooks

from gristmill._base import open_files
from gristmill._torch import private

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
PROTOCOL = 5
# Named, since the user may have set another default.
CPU = torch.device("cpu")
# Buffers as parts of blobs: int64 of shape (n, 3), each row (blob, offset, bytes).
Places = npt.NDArray[np.int64]
Pickled = tuple[memoryview, list[Bytes]]


def array_of(tensor: torch.Tensor) -> Array | None:
    """The array that views all of a plain tensor, in row-major order; else None."""
    try:
        array: Array = tensor.numpy()
    except (RuntimeError, TypeError, ValueError):
        # It requires grad, or NumPy has no such thing: a device, a layout, a dtype.
        return None
    return array if tensor.stride() == _strides_of(tensor.shape) else None


@functools.lru_cache(maxsize=1024)
def _strides_of(shape: torch.Size) -> tuple[int, ...] | None:
    """The strides, in elements, that an array gets back; None for an empty one."""
    if 0 in shape:
        return None
    steps = itertools.accumulate(reversed(shape), operator.mul, initial=1)
    return tuple(steps)[-2::-1]


def reduce(thing: Any) -> Any:
    """How to pickle what has memory of tensors; NotImplemented for all else."""
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


class _Pickler(ForkingPickler):
    """Pickles functions and classes by name."""

    reducer_override = staticmethod(reduce)


class CloudPickler(open_files.Pickler):
    """Pickles functions and classes by value, too, where nothing else will do."""

    def __init__(
        self, file: io.BytesIO, protocol: int, fix_imports: bool, keep: Any
    ) -> None:
        inherited = cloudpickle.Pickler.dispatch_table
        ours = ForkingPickler(io.BytesIO()).dispatch_table
        # Before the base class looks for it.
        self.dispatch_table = collections.ChainMap(inherited, ours)
        super().__init__(file, protocol, keep)

    def reducer_override(self, thing: Any) -> Any:
        reduced = reduce(thing)
        return super().reducer_override(thing) if reduced is NotImplemented else reduced


class _BatchCloudPickler(CloudPickler):
    """Names the classes of the user's ``__main__`` for the process that has them.

    To send one by value would set its attributes there to what they were when the
    worker began.
    """

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, type) and thing in _classes_of_main:
            return _class_of_main, (thing.__qualname__,)
        return super().reducer_override(thing)


# Those that came to this process by value.
_classes_of_main: weakref.WeakSet[type] = weakref.WeakSet()


def receive_class(make: Callable[..., type], arguments: tuple[Any, ...]) -> type:
    """The class that cloudpickle makes of `arguments`, in a worker."""
    cls = make(*arguments)
    if cls.__module__ == "__main__" and "<locals>" not in cls.__qualname__:
        _classes_of_main.add(cls)
    return cls


def _class_of_main(name: str) -> Any:
    return operator.attrgetter(name)(sys.modules["__main__"])


def dumps(thing: Any) -> Pickled:
    """Pickle a batch: ``(pickle, buffers)``.

    The buffers view the memory of its tensors and arrays; `loads` wants them all, in
    this order.

    Raises:
        Exception: Whatever pickling raised.
    """
    try:
        return dumped(thing, _Pickler)
    except Exception:
        return dumped(thing, _BatchCloudPickler)


def dumped(thing: Any, pickler: type[ForkingPickler | CloudPickler]) -> Pickled:
    """Like `dumps`, by one kind of pickler."""
    file = io.BytesIO()
    buffers: list[Bytes] = []

    def keep(buffer: pickle.PickleBuffer) -> None:
        buffers.append(np.frombuffer(buffer.raw(), np.uint8))

    pickler(file, PROTOCOL, True, keep).dump(thing)
    return file.getbuffer(), buffers


def loads(pickled: Any, buffers: Sequence[Any]) -> Any:
    """The object of a pickle; its tensors and arrays view the buffers."""
    return pickle.loads(pickled, buffers=buffers)


def merged(buffers: list[Bytes]) -> tuple[list[Bytes], Places]:
    """Blobs with the memory of all buffers, each byte once, and where each buffer is.

    Tensors with memory in common have it in common again when their buffers are taken
    out of the blobs.
    """
    spans = [(buffer.ctypes.data, buffer.nbytes) for buffer in buffers]
    groups: list[tuple[int, int, list[Bytes]]] = []  # Begin, end and the buffers.
    places = np.empty((len(buffers), 3), np.int64)
    for i in sorted(range(len(buffers)), key=spans.__getitem__):
        begin, nbytes = spans[i]
        end, members = begin + nbytes, [buffers[i]]
        first = begin
        if groups and begin < groups[-1][1]:
            first, last, others = groups.pop()
            end, members = max(end, last), others + members
        places[i] = len(groups), begin - first, nbytes
        groups.append((first, end, members))
    return [_span(first, end - first, owners) for first, end, owners in groups], places


def parted(blobs: list[Bytes], places: Places) -> list[Bytes]:
    """The buffers that `merged` made blobs of."""
    return [blobs[blob][at : at + size] for blob, at, size in places.tolist()]


def make_tensor(
    buffer: Any,
    geometry: tuple[torch.dtype, tuple[int, ...], tuple[int, ...]],
    bits: tuple[bool, bool],
    requires_grad: bool,
    parameter: bool,
) -> torch.Tensor:
    """A tensor that views a buffer, which is None where it has no elements.

    `geometry` is its dtype, size and strides; `bits` says whether its conjugate and
    negative bits are set.
    """
    dtype, size, stride = geometry
    if buffer is None:
        tensor = torch.empty_strided(size, stride, dtype=dtype, device=CPU)
    else:
        tensor = torch.empty(0, dtype=dtype, device=CPU)
        tensor.set_(make_storage(buffer), 0, size, stride)
    conjugate, negative = bits
    tensor = tensor.conj() if conjugate else tensor
    tensor = private.neg_view(tensor) if negative else tensor
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
    view = torch.empty(0, dtype=torch.uint8, device=CPU)
    memory: Any = view.set_(storage, begin, (nbytes,), (1,)).numpy()
    return pickle.PickleBuffer(memory)


def _span(address: int, nbytes: int, owners: list[Bytes]) -> Bytes:
    """Memory that several arrays make up together."""
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(address)
    memory.owners = owners
    return np.frombuffer(memory, np.uint8)
