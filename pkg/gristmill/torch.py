"""PyTorch's DataLoader on Gristmill's engine, and batches as tensors.  Imports torch."""

from __future__ import annotations

from gristmill import _launcher
from gristmill._torch.device import DeviceIterator, to_device
from gristmill._torch.loader import DataLoader
from gristmill._torch.tensors import TensorIterator, as_tensor_tree, as_tensors
from gristmill._torch.trainers import install, uninstall

__all__ = [
    "DataLoader",
    "DeviceIterator",
    "TensorIterator",
    "as_tensor_tree",
    "as_tensors",
    "install",
    "to_device",
    "uninstall",
]

# Workers start at once where torch is imported before they are needed.
_launcher.start_early(_launcher.FOR_TORCH)
