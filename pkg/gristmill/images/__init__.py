"""Transforms of pictures, by the names and arguments of ``torchvision.transforms.v2``.

Each takes one NumPy array of shape ``(H, W, C)`` and dtype uint8, where ``C`` is 1 or
3, or the field `key` of a dict; the pixels are those that torchvision has of Pillow's
images.  Where several stand one behind the other before a batch, the loader computes
them at once, from the file's bytes to the batch, with the same pixels; that holds for
any order, but costs least where decoding, cropping or resizing, flipping, `Normalize`
and `ToLayout` follow each other in this order.  Random numbers are the record's own: a
picture does not depend on the process, the thread or the batch that it is computed in.

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

from gristmill._base.listing import listed
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
    return listed(__all__)
