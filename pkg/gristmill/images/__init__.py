"""Image transforms with the names and arguments of ``torchvision.transforms.v2``.

Each takes one NumPy array of shape ``(H, W, 1)`` or ``(H, W, 3)`` and dtype uint8, or
the field `key` of a dict.  The pixels equal those that torchvision computes for
Pillow's images.  If several transforms follow each other before a batch, the loader
computes them in one step, from the file's bytes to the batch, with the same pixels.
They may come in any order, but this order costs least: decoding, cropping or resizing,
flipping, `Normalize`, `ToLayout`.  Each record has its own random numbers, so an image
does not depend on the process, the thread or the batch in which it is computed.

Example:
    >>> from gristmill import images
    >>> operations = [
    ...     images.DecodeImage(channels=3),
    ...     images.RandomResizedCrop(224),
    ...     images.RandomHorizontalFlip(),
    ...     images.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ...     images.ToLayout("CHW"),
    ... ]
"""

from __future__ import annotations

from gristmill._base.lazy_names import public_names
from gristmill.images._format import Normalize, ToLayout
from gristmill.images._geometry import (
    CenterCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from gristmill.transforms._image import DecodeImage

__all__ = [
    "CenterCrop",
    "DecodeImage",
    "Normalize",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ToLayout",
]


def __dir__() -> list[str]:
    return public_names(__all__)
