"""Decode records that are images: JPEG natively, other formats with Pillow."""

from __future__ import annotations

import functools
import io
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.pillow import import_pillow
from gristmill.errors import CorruptRecord
from gristmill.transforms._decoding import Decoder
from gristmill.transforms._image_task import FILTERS, ImageTask

__all__ = ["DecodeImage"]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_DTYPES = (np.dtype(np.uint8), np.dtype(np.float32))
# The mode of the result for each of Pillow's modes, if no number of channels is given.
# Images of other modes become RGB.
_DEFAULT_RESULT_MODES = {"1": "L", "L": "L", "LA": "LA", "La": "LA"}
_DEFAULT_RESULT_MODES |= dict.fromkeys(("PA", "RGBA", "RGBa"), "RGBA")
# Pillow warns about larger images.
MAX_PIXELS = 89_478_485

_pillow = functools.partial(import_pillow, "transforms.DecodeImage")


class DecodeImage(Decoder):
    """Decode the bytes of an image file: JPEG, PNG, WebP, and others that Pillow reads.

    The pixels equal Pillow's.  In a loader or a batched dataset, JPEG files are decoded
    when their batch is made, together with the transforms of `gristmill.images` that
    follow; only the rows and columns that a crop needs are decoded.

    Args:
        channels: Channels ``C`` of the array: 1 for gray, 3 for RGB, 4 for RGB and
            alpha. None keeps the file's own: 1, 2 (gray and alpha), 3 or 4; palette
            colors, CMYK and others become RGB, or RGBA if they have alpha.
        dtype: uint8, or float32 for values in [0, 1]. 16-bit samples are reduced to 8
            bits for uint8. For float32 they are kept if Pillow supports them, which is
            only true for gray images.
        key: The field of a dict to decode; other fields stay unchanged. None decodes
            the record itself.
        size: Height and width to resize images to, by bilinear interpolation over all
            pixels that a new pixel covers. None keeps the size.
        draft: Whether JPEG files may be decoded at 1/2, 1/4 or 1/8 of their size, as
            long as that is not less than `size`. This is faster, and changes the pixels
            slightly. Needs `size`.
        orient: Whether to apply the EXIF orientation.
        max_pixels: The maximum number of pixels of a file. Larger files are not
            decoded. Pillow's own limit, ``PIL.Image.MAX_IMAGE_PIXELS``, also applies.

    The array has shape ``(H, W, C)``, also if ``C`` is 1, as in ``tf.io.decode_image``;
    for torchvision's ``(C, H, W)`` use ``np.moveaxis(image, -1, 0)``. If a file has
    several frames, the first one is decoded.

    Raises:
        ImportError: Pillow is not installed. Raised by the constructor.
        ValueError: An argument is out of range. Raised by the constructor.
        CorruptRecord: The bytes are not an image that Pillow reads, are damaged, or
            have more than `max_pixels`. Raised by `map`, with the reason. JPEG files
            with damaged data are refused; Pillow alone would invent the pixels.

    Example:
        >>> DecodeImage(channels=3, size=(224, 224))
        DecodeImage(channels=3, size=(224, 224))
    """

    def __init__(
        self,
        channels: int | None = None,
        dtype: npt.DTypeLike = np.uint8,
        *,
        key: str | None = None,
        size: tuple[int, int] | None = None,
        draft: bool = False,
        orient: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        super().__init__(key)
        if channels not in (None, *_MODES):
            raise ValueError(f"channels must be None, 1, 3 or 4, got {channels}.")
        if np.dtype(dtype) not in _DTYPES:
            raise ValueError(f"dtype must be uint8 or float32, got {dtype}.")
        sides = None if size is None else tuple(map(int, size))
        if sides is not None and (len(sides) != 2 or min(sides) < 1):
            raise ValueError(f"size must be a height and a width, got {size}.")
        if draft and size is None:
            raise ValueError(
                "draft=True needs size, got None. Pass the size of images."
            )
        if max_pixels < 1:
            raise ValueError(f"max_pixels must be at least 1, got {max_pixels}.")
        self._channels = channels
        self._dtype = np.dtype(dtype)
        self._size = sides
        self._draft = bool(draft)
        self._orient = bool(orient)
        self._max_pixels = int(max_pixels)
        _pillow()

    def decode(self, data: memoryview) -> npt.NDArray[Any]:
        """Return the pixels of a file."""
        task = self._task(data)
        if task is None:
            return self._decode_with_pillow(data)
        try:
            pixels = task.compute()
        except CorruptRecord as error:
            raise _decode_error(data, str(error)) from error
        return self._scale(pixels)

    def defer(self, element: Any) -> Any:
        """Return the element with a task in place of the bytes.

        Pixels that cannot be deferred are decoded.

        Args:
            element: The bytes, or a dict that has them in the field `key`.

        Returns:
            The `ImageTask` or the pixels, or a new dict with them.
        """
        data = self._buffer(element)
        if self._dtype != np.uint8:
            return self._replace_value(element, self.decode(data))
        task = self._task(data)
        if task is None:
            pixels = self._decode_with_pillow(data)
            if pixels.shape[2] not in (1, 3):
                return self._replace_value(element, pixels)
            task = ImageTask.of_array(pixels)
            task.draft = self._draft
        return self._replace_value(element, task)

    def _task(self, data: memoryview) -> ImageTask | None:
        """Return the task of decoding a file, or None if Pillow must decode it.

        Pillow adds alpha, and warns about large files.
        """
        try:
            format, height, width, file_channels, orientation = _core.image_header(data)
        except CorruptRecord:
            return None  # Pillow may be able to read it, or raises a clear error.
        channels = self._channels or file_channels
        if format != "jpeg" or channels == 4:
            return None
        self._check_pixels(height, width)
        if height * width > (_pillow().MAX_IMAGE_PIXELS or height * width):
            return None
        orientation = orientation if self._orient else 1
        task = ImageTask(data, height, width, channels, orientation)
        if self._size is not None:
            task = task.add_resize(*self._size, FILTERS.index("bilinear"))
        task.draft = self._draft
        return task

    def _decode_with_pillow(self, data: memoryview) -> npt.NDArray[Any]:
        pillow = _pillow()
        try:
            with pillow.open(io.BytesIO(data)) as image:
                return self._pixels(image)
        except (CorruptRecord, MemoryError):
            raise
        except Exception as error:  # Decoders raise many types on arbitrary bytes.
            reason = str(error)
            if isinstance(error, pillow.UnidentifiedImageError):
                reason = "Pillow does not support the format"
            raise _decode_error(data, reason) from error

    def _check_pixels(self, height: int, width: int) -> None:
        if width * height > self._max_pixels:
            raise CorruptRecord(
                f"the image has {width} x {height} pixels, more than max_pixels,"
                f" {self._max_pixels}."
            )

    def _pixels(self, image: Any) -> npt.NDArray[Any]:
        self._check_pixels(image.height, image.width)
        if self._size is not None and self._draft:
            # The orientation may swap the sides later.
            rows, columns = self._size
            if self._orient:
                rows = columns = max(self._size)
            image.draft(None, (columns, rows))
        if self._orient:
            import PIL.ImageOps

            image = PIL.ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PNG"):
            return self._decode_16_bits(image)
        image = self._resize(self._convert(image))
        pixels = np.array(image)
        if pixels.ndim == 2:
            pixels = pixels[:, :, np.newaxis]
        return self._scale(pixels)

    def _scale(self, pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self._dtype == np.float32:
            return pixels * np.float32(1 / 255)
        return pixels

    def _decode_16_bits(self, image: Any) -> npt.NDArray[Any]:
        gray: npt.NDArray[Any] = np.asarray(image).astype(np.float32)
        gray = np.asarray(self._resize(_pillow().fromarray(gray)))
        gray = gray / 65535 if self._dtype == np.float32 else gray // 256
        pixels = np.empty((*gray.shape, self._channels or 1), self._dtype)
        pixels[:] = gray[:, :, np.newaxis]
        if self._channels == 4:
            pixels[:, :, 3] = 1 if self._dtype == np.float32 else 255
        return pixels

    def _convert(self, image: Any) -> Any:
        if image.mode in ("I", "F") or image.mode.startswith("I;"):
            raise CorruptRecord(
                f"the image has samples of Pillow's mode {image.mode}, expected 8 bits,"
                " or 16 of gray."
            )
        if image.mode in ("P", "PA") and "transparency" in image.info:
            image = image.convert("RGBA")
        if self._channels is None:
            mode = _DEFAULT_RESULT_MODES.get(image.mode, "RGB")
        else:
            mode = _MODES[self._channels]
        return image if image.mode == mode else image.convert(mode)

    def _resize(self, image: Any) -> Any:
        if self._size is None:
            return image
        rows, columns = self._size
        return image.resize((columns, rows), _pillow().Resampling.BILINEAR)

    def __repr__(self) -> str:
        arguments = {
            "channels": self._channels,
            "dtype": None if self._dtype == np.uint8 else self._dtype.name,
            "key": self._key,
            "size": self._size,
            "draft": self._draft or None,
            "orient": self._orient or None,
            "max_pixels": None if self._max_pixels == MAX_PIXELS else self._max_pixels,
        }
        texts = [f"{name}={v!r}" for name, v in arguments.items() if v is not None]
        return f"DecodeImage({', '.join(texts)})"


def _decode_error(data: memoryview, reason: str) -> CorruptRecord:
    return CorruptRecord(f"{len(data)} bytes cannot be decoded as an image: {reason}")
