"""A sequence of image transforms, represented by numbers.

Each image is decoded, turned by its EXIF orientation, cropped, resized, cut to a window
that may extend beyond it, flipped, normalized and laid out, in this order.  A transform
adds its step to an `ImageTask`.  If the step does not fit after the existing ones, the
task is computed, and the step starts a new task from its pixels. Transforms can
therefore come in any order, and the pixels are the same as when they are applied one
after the other.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.deferred import Deferred
from gristmill._base.types import Alloc
from gristmill.errors import ShapeMismatch

__all__ = ["FILTERS", "ImageTask", "Scaling", "bfloat16"]

# Names of resampling filters; the index is the filter's number in the core.
FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")

Box: TypeAlias = tuple[int, int, int, int]  # Top, left, height, width.


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Conversion of bytes to numbers: ``(byte / 255 - mean) / std``.

    Attributes:
        mean: One value per channel, or one for all.
        std: As many values as `mean`, none of them 0.
        dtype: float32, float16 or bfloat16.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: str


class ImageTask(Deferred):
    """An image that is not computed yet.

    Belongs to one transform at a time, which may change it.

    Attributes:
        data: Bytes of a JPEG file, or an array of shape (H, W, C) and dtype uint8.
        channels: C of the result.
        orientation: The EXIF orientation to apply to the file's pixels, 1 to 8.
        draft: Whether files may be decoded at a fraction of their size.
        crop: A box of the turned image.
        resized: Height and width that the crop is resized to.
        filter: Number of the filter; unused if the crop already has that size.
        window: A box of the resized crop; it is 0 outside of the crop.
        flip: Whether to swap left and right of the window.
        scaling: The conversion to floats. None keeps uint8.
        chw: Whether the result has shape (C, H, W).
    """

    __slots__ = (
        "channels", "chw", "crop", "data", "draft", "filter", "flip", "orientation",
        "resized", "scaling", "window",
    )  # fmt: skip

    def __init__(
        self, data: Any, height: int, width: int, channels: int, orientation: int = 1
    ) -> None:
        if orientation > 4:
            height, width = width, height
        self.data = data
        self.channels = channels
        self.orientation = orientation
        self.draft = False
        self.crop: Box = (0, 0, height, width)
        self.resized = (height, width)
        self.filter = FILTERS.index("bilinear")
        self.window: Box = self.crop
        self.flip = False
        self.scaling: Scaling | None = None
        self.chw = False

    @classmethod
    def of_array(cls, pixels: npt.NDArray[Any]) -> ImageTask:
        """Return a task that starts with pixels.

        Raises:
            TypeError: The pixels are not of shape (H, W, 1) or (H, W, 3) and uint8.
        """
        shape = pixels.shape
        if (
            pixels.dtype != np.uint8
            or len(shape) != 3
            or shape[2] not in (1, 3)
            or 0 in shape
        ):
            raise TypeError(
                "Images must have shape (H, W, 1) or (H, W, 3) and dtype uint8, got"
                f" {shape} and {pixels.dtype}. Decode with channels=1 or 3, and put"
                " Normalize and then ToLayout last."
            )
        return cls(np.ascontiguousarray(pixels), *shape)

    @property
    def height(self) -> int:
        """Number of rows of the result."""
        return self.window[2]

    @property
    def width(self) -> int:
        """Number of columns of the result."""
        return self.window[3]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the result."""
        _, _, height, width = self.window
        if self.chw:
            return self.channels, height, width
        return height, width, self.channels

    def add_crop(self, top: int, left: int, height: int, width: int) -> ImageTask:
        """Add a crop to a box; pixels of the box outside of the image are 0."""
        window_top, window_left, rows, columns = self.window
        is_inside = min(top, left) >= 0
        is_inside = is_inside and top + height <= rows and left + width <= columns
        if self._is_closed or not (is_inside or self._is_whole):
            return self._compute_as_task().add_crop(top, left, height, width)
        if is_inside and self._is_plain:
            self.crop = (self.crop[0] + top, self.crop[1] + left, height, width)
            self.resized = (height, width)
            self.window = (0, 0, height, width)
        else:
            self.window = (window_top + top, window_left + left, height, width)
        return self

    def add_resize(self, height: int, width: int, filter: int) -> ImageTask:
        """Add a resize."""
        if self._is_closed or not self._is_plain:
            return self._compute_as_task().add_resize(height, width, filter)
        self.filter = filter
        self.resized = (height, width)
        self.window = (0, 0, height, width)
        return self

    def add_flip(self, flip: bool) -> ImageTask:
        """Add a swap of left and right, if `flip`."""
        if self._is_formatted:
            return self._compute_as_task().add_flip(flip)
        self.flip ^= flip
        return self

    def add_scaling(self, scaling: Scaling) -> ImageTask:
        """Add a conversion to floats.

        Raises:
            ValueError: The number of means does not match the channels.
        """
        if self._is_formatted:
            return self._compute_as_task().add_scaling(scaling)
        if len(scaling.mean) not in (1, self.channels):
            raise ValueError(
                "mean and std must have one value, or one for each of the image's"
                f" {self.channels} channels, got {len(scaling.mean)}. Decode with"
                f" channels={len(scaling.mean)}."
            )
        self.scaling = scaling
        return self

    def compute_if_smaller(self) -> ImageTask:
        """Return this task, or one of its result if that needs much less memory."""
        if self._is_formatted or not isinstance(self.data, np.ndarray):
            return self
        is_small = self.data.size <= 2 * self.height * self.width * self.channels
        return self if is_small else self._compute_as_task()

    def stack(
        self, column: list[Any], alloc: Alloc | None, threads: int
    ) -> npt.NDArray[Any]:
        """Return the batch, of shape (B, *shape).

        Raises:
            CorruptRecord: An image cannot be decoded.
            ShapeMismatch: The images differ in shape, or in settings of the batch.
        """
        settings, shape = self._batch_settings, self.shape
        for task in column:
            if not isinstance(task, ImageTask):
                raise ShapeMismatch(
                    f"A batch must have only images, got {type(task).__name__}."
                )
            if task.shape != shape or task._batch_settings != settings:
                raise ShapeMismatch(
                    "Images of a batch must have the same shape and settings, got"
                    f" shapes {shape} and {task.shape}."
                )
        allocate = np.empty if alloc is None else alloc
        out = allocate((len(column), *shape), self._dtype)
        self._render(column, out, threads)
        return out

    def compute(self) -> npt.NDArray[Any]:
        """Return the single image, of shape `shape`.

        Raises:
            CorruptRecord: The image cannot be decoded.
        """
        if self._is_done:
            return np.array(self.data)
        out: npt.NDArray[Any] = np.empty((1, *self.shape), self._dtype)
        self._render([self], out, 1)
        pixels: npt.NDArray[Any] = out[0]
        return pixels

    def _render(
        self, column: Sequence[ImageTask], out: npt.NDArray[Any], threads: int
    ) -> None:
        _core.render_images(
            [task.data for task in column],
            np.array([task._plan for task in column], np.int32),
            out,
            filter=self.filter,
            table=self._byte_values,
            chw=self.chw,
            draft=self.draft,
            threads=threads,
        )

    @property
    def _byte_values(self) -> npt.NDArray[Any] | None:
        """The float of each byte by channel; None if the result is uint8."""
        if self.scaling is None:
            return None
        return _byte_values_of(self.scaling, self.channels)

    @property
    def _dtype(self) -> np.dtype[Any]:
        byte_values = self._byte_values
        return np.dtype(np.uint8) if byte_values is None else byte_values.dtype

    @property
    def _plan(self) -> tuple[int, ...]:
        """The numbers that describe this image to `_core.render_images`."""
        top, left, _, _ = self.window
        return (*self.crop, *self.resized, top, left, self.flip, self.orientation)

    @property
    def _batch_settings(self) -> tuple[Any, ...]:
        """The settings that must be equal for all images of a batch."""
        return self.channels, self.filter, self.scaling, self.chw, self.draft

    @property
    def _is_whole(self) -> bool:
        """True if the window is exactly the resized crop."""
        return self.window == (0, 0, *self.resized)

    @property
    def _is_plain(self) -> bool:
        """True if the result is a box of the image, which is not resized."""
        return self._is_whole and self.resized == self.crop[2:] and not self.draft

    @property
    def _is_formatted(self) -> bool:
        """True if the result is no longer uint8 of shape (H, W, C)."""
        return self.chw or self.scaling is not None

    @property
    def _is_closed(self) -> bool:
        """True if crops and resizes cannot be added."""
        return self.flip or self._is_formatted

    @property
    def _is_done(self) -> bool:
        """True if the result is the original array."""
        if not isinstance(self.data, np.ndarray) or self._is_closed:
            return False
        whole = (0, 0, *self.data.shape[:2])
        return self.crop == self.window == whole and self._is_whole

    def _compute_as_task(self) -> ImageTask:
        return ImageTask.of_array(self.compute())


@functools.lru_cache(maxsize=64)
def _byte_values_of(scaling: Scaling, channels: int) -> npt.NDArray[Any]:
    """Return the value of each byte, shape (C, 256), computed in float32 like torch."""
    mean, std = np.array([scaling.mean, scaling.std], np.float32)[:, :, np.newaxis]
    values = (np.arange(256, dtype=np.float32) * np.float32(1 / 255) - mean) / std
    dtype = bfloat16() if scaling.dtype == "bfloat16" else scaling.dtype
    return np.broadcast_to(values, (channels, 256)).astype(dtype, "C")


def bfloat16() -> np.dtype[Any]:
    """Return NumPy's dtype of bfloat16.

    Raises:
        ImportError: The ml_dtypes package is not installed.
    """
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        if error.name != "ml_dtypes":
            raise
        raise ImportError(
            "bfloat16 needs the ml_dtypes package. Install it with: pip install"
            " ml-dtypes"
        ) from error
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype
