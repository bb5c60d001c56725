"""A slot to send batches through, and functions that compare batches."""

from __future__ import annotations

import collections
import dataclasses
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import torch

from gristmill._hot import slot_reader, slot_writer, views
from gristmill._torch.batches import encoding
from support.core_slot import CoreSlot

COPIED_BYTES = 16 << 10
NO_KEYS = np.empty(0, np.int64)


class Pair(NamedTuple):
    """A batch with names."""

    left: Any
    right: Any


@dataclasses.dataclass
class Record:
    """A batch of a user-defined class."""

    data: Any
    label: str = "none"


class OwnDict(dict):  # type: ignore[type-arg]
    """A mapping with an attribute besides its items."""

    note = "none"


class OwnTensor(torch.Tensor):
    """A tensor type that must be preserved."""


class Slot:
    """A slot filled with nonzero bytes, and the number of its views."""

    def __init__(self, nbytes: int = 1 << 20) -> None:
        self._raw = np.full(nbytes + 64, 0xA5, np.uint8)
        self._core = CoreSlot()
        self.address = -(-int(self._raw.ctypes.data) // 64) * 64
        self.writer = slot_writer.SlotWriter(self.address, nbytes)

    @property
    def views(self) -> int:
        """The number of outputs with views."""
        return int(self._core.views)

    def empty(self, shape: Any, dtype: Any) -> Any:
        """Return an array in the slot, or in private memory if the slot is full."""
        return self.writer.empty(shape, dtype)

    def send(self, batch: Any) -> Any:
        """Return what the parent receives for a worker's batch."""
        element = encoding.encode(batch)
        used = slot_writer.encode(self.writer, [(element, NO_KEYS, (1,))], None)
        del element
        got, _, _ = slot_reader.decode(self.address, used, 0, self._view, COPIED_BYTES)
        return encoding.decode(got)[0]

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor's memory lies in the slot."""
        return 0 <= tensor.data_ptr() - self.address < self.writer.capacity

    def _view(self) -> views.SlotView:
        self._core.views += 1
        return views.SlotView(self._core.address)


def through_torch(batch: Any) -> Any:
    """Return a batch after it was sent through the queue of torch's loader."""
    # The default protocol of Python up to 3.13, which makes all arrays writable.
    return pickle.loads(bytes(ForkingPickler.dumps(batch, 4)))


def assert_same(got: Any, want: Any) -> None:
    """Check types, values and the memory layout of tensors."""
    assert type(got) is type(want)
    if isinstance(want, torch.Tensor):
        assert_same_tensor(got, want)
    elif isinstance(want, np.ndarray):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.flags.writeable == want.flags.writeable
        assert got.tolist() == want.tolist()
    elif isinstance(want, collections.abc.Mapping):
        assert [*map(repr, got)] == [*map(repr, want)]
        assert [*map(type, got)] == [*map(type, want)]
        for key in want:
            assert_same(got[key], want[key])
        assert_same(vars(got) if hasattr(got, "__dict__") else 0, attributes(want))
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_same(one, other)
    elif dataclasses.is_dataclass(want):
        assert_same(vars(got), vars(want))
    else:
        assert repr(got) == repr(want)


def attributes(thing: Any) -> Any:
    """Return the attributes of an object, or 0 if it has no __dict__."""
    return vars(thing) if hasattr(thing, "__dict__") else 0


def assert_same_tensor(got: torch.Tensor, want: torch.Tensor) -> None:
    """Check all properties of a tensor except its address."""
    assert (got.dtype, got.shape, got.layout) == (want.dtype, want.shape, want.layout)
    assert (got.requires_grad, got.is_leaf) == (want.requires_grad, want.is_leaf)
    assert (got.is_conj(), got.is_neg()) == (want.is_conj(), want.is_neg())
    if want.layout is not torch.strided:
        assert_same(got.to_dense(), want.to_dense())
        return
    assert got.stride() == want.stride()
    assert bytes_of(got) == bytes_of(want)


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor's elements, for any dtype."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    rows = torch.empty(0, dtype=plain.dtype).set_(
        plain.untyped_storage(), plain.storage_offset(), plain.shape, plain.stride()
    )
    size = plain.itemsize
    raw = torch.empty(0, dtype=torch.uint8).set_(plain.untyped_storage())
    begin = rows.storage_offset()
    where = torch.zeros(plain.shape, dtype=torch.int64)
    for axis, (n, step) in enumerate(zip(plain.shape, plain.stride(), strict=True)):
        shape = [1] * plain.ndim
        shape[axis] = n
        where = where + step * torch.arange(n).reshape(shape)
    index = ((where.reshape(-1, 1) + begin) * size + torch.arange(size)).reshape(-1)
    return raw[index].numpy().tobytes()


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """Return all tensors of a batch, with repetitions."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, collections.abc.Mapping):
        return [tensor for part in tree.values() for tensor in tensors_of(part)]
    if isinstance(tree, (list, tuple)):
        return [tensor for part in tree for tensor in tensors_of(part)]
    if dataclasses.is_dataclass(tree):
        return [tensor for part in vars(tree).values() for tensor in tensors_of(part)]
    return []
