"""Torch's generic classes as bases of Gristmill's, with type arguments.

A class may have another number of type variables in another version of torch, and
``Dataset[Any]`` then raises TypeError.  Therefore only type checkers see the arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.utils.data

if TYPE_CHECKING:
    TorchDataset = torch.utils.data.Dataset
    TorchDistributedSampler = torch.utils.data.DistributedSampler
    TorchIterableDataset = torch.utils.data.IterableDataset
    TorchLoader = torch.utils.data.DataLoader
    TorchSampler = torch.utils.data.Sampler
else:

    class _Base:
        """Returns a class for any type arguments."""

        def __init__(self, cls: type) -> None:
            self._cls = cls

        def __getitem__(self, type_arguments: Any) -> type:
            return self._cls

    TorchDataset = _Base(torch.utils.data.Dataset)
    TorchDistributedSampler = _Base(torch.utils.data.DistributedSampler)
    TorchIterableDataset = _Base(torch.utils.data.IterableDataset)
    TorchLoader = _Base(torch.utils.data.DataLoader)
    TorchSampler = _Base(torch.utils.data.Sampler)
