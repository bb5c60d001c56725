"""Decoding of the image files in the records of a TFDS dataset."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill.transforms._image import DecodeImage

__all__ = ["CHANNELS", "Decode", "image_decoder", "undecodable_reason"]

Decode: TypeAlias = Callable[[bytes], npt.NDArray[Any]]
CHANNELS = (1, 3, 4)
# Packages that decode 16-bit samples; Pillow supports those only in gray images.
PACKAGES = ("tensorflow_datasets", "cv2")


def undecodable_reason(dtype: str, channels: int | None) -> str | None:
    """Return the reason why images cannot be decoded, or None if they can.

    The reason continues the sentence "It is an Image ...".
    """
    if dtype == "uint8" and channels in CHANNELS:
        return None
    if dtype == "float32" and channels == 1:
        return None
    if dtype != "uint16":
        return "not of uint8 with 1, 3 or 4 channels"
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    return (
        "of uint16, which needs tensorflow-datasets and opencv-python (not found:"
        f" {', '.join(missing)})"
    )


def image_decoder(dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Decode:
    """Return a function that decodes image files to arrays of a dtype and a shape."""
    if dtype == np.uint16:
        return functools.partial(_decode_by_tfds, shape)
    if dtype == np.float32:
        return functools.partial(_decode_to_floats, DecodeImage(4))
    return DecodeImage(shape[-1]).map


def _decode_to_floats(image: DecodeImage, data: bytes) -> npt.NDArray[Any]:
    """Decode an image in which TFDS stores each float as a pixel of four bytes."""
    floats: npt.NDArray[Any] = image.map(data).view(np.float32)
    return floats


def _decode_by_tfds(shape: tuple[int | None, ...], data: bytes) -> npt.NDArray[Any]:
    pixels: npt.NDArray[Any] = _feature(shape).decode_example_np(data)
    return pixels


@functools.cache
def _feature(shape: tuple[int | None, ...]) -> Any:
    features = importlib.import_module("tensorflow_datasets").features
    return features.Image(shape=shape, dtype=np.uint16, encoding_format="png")
