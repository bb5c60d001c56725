"""PyTorch's DataLoader on Gristmill's engine; tensor batches.  Imports torch."""

from __future__ import annotations

from gristmill._base.lazy_names import public_names
from gristmill._torch.batches.tensors import (
    AsIterable,
    TensorIterator,
    as_tensor_tree,
    as_tensors,
)
from gristmill._torch.device.device import DeviceIterator, to_device
from gristmill._torch.indices.buckets import BucketBatchSampler
from gristmill._torch.indices.distributed import DistributedSampler
from gristmill._torch.indices.masked import WithMask
from gristmill._torch.loader import DataLoader
from gristmill._torch.stateful import StatefulDataLoader
from gristmill._torch.trainers import install, uninstall

__all__ = [
    "AsIterable",
    "BucketBatchSampler",
    "DataLoader",
    "DeviceIterator",
    "DistributedSampler",
    "StatefulDataLoader",
    "TensorIterator",
    "WithMask",
    "as_tensor_tree",
    "as_tensors",
    "install",
    "to_device",
    "uninstall",
]


# The module name in pickles and tracebacks.
for _public in (
    AsIterable,
    BucketBatchSampler,
    DataLoader,
    DistributedSampler,
    StatefulDataLoader,
    WithMask,
):
    _public.__module__ = __name__


def __dir__() -> list[str]:
    return public_names(__all__)
