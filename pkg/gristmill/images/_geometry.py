"""Crops, resizes and flips."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gristmill._base.argument_checks import check_integer
from gristmill.images._transform import (
    ImageMap,
    RandomImageMap,
    as_filter,
    as_range,
    as_size,
)
from gristmill.transforms._image_task import FILTERS, Box, ImageTask

__all__ = ["CenterCrop", "RandomHorizontalFlip", "RandomResizedCrop", "Resize"]

# The most attempts to draw a crop that fits into the image.
_MAX_DRAWS = 10


class RandomResizedCrop(RandomImageMap):
    """Crop a random part of an image, and resize it.

    Args:
        size: Height and width of the result; an int sets both.
        scale: The minimum and maximum area of the part, as a fraction of the image's.
        ratio: The minimum and maximum ratio of the part's width to its height.
        interpolation: Pillow's filter: ``"bilinear"``, ``"bicubic"``, ``"lanczos"``,
            ``"box"``, ``"hamming"`` or ``"nearest"``. All but the last average over all
            pixels that a new pixel covers.
        antialias: True or None, because these filters are always antialiased.
        key: The field of a dict to crop. None crops the record itself.

    The area and the logarithm of the ratio are drawn by ``rng.random()``, both evenly
    distributed, up to 10 times until the part fits into the image. Two more numbers
    choose its top and its left. If no part fits, the largest centered part is used
    whose ratio is in bounds.

    Raises:
        ValueError: An argument is out of range. Raised by the constructor.
        TypeError: An argument has the wrong type; or, raised by `random_map`, the value
            is not an image.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> crop = RandomResizedCrop(8)
        >>> crop.random_map(np.zeros((30, 40, 3), np.uint8), rng).shape
        (8, 8, 3)
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
        *,
        key: str | None = None,
    ) -> None:
        self.size = as_size(size)
        self.scale = as_range("scale", scale)
        self.ratio = as_range("ratio", ratio)
        if self.ratio[0] == 0:
            raise ValueError(f"ratio must be above 0, got {ratio}.")
        self.interpolation = as_filter(interpolation, antialias)
        super().__init__(key)

    def add(self, task: ImageTask, rng: np.random.Generator) -> ImageTask:
        """Add a crop and a resize."""
        task = task.add_crop(*self._draw_box(task.height, task.width, rng))
        return task.add_resize(*self.size, FILTERS.index(self.interpolation))

    def _draw_box(self, height: int, width: int, rng: np.random.Generator) -> Box:
        """Draw the box of a crop; see the class for the order of the draws."""
        min_scale, max_scale = self.scale
        min_log_ratio, max_log_ratio = map(math.log, self.ratio)
        draw = rng.random
        for _ in range(_MAX_DRAWS):
            area = height * width * (min_scale + (max_scale - min_scale) * draw())
            ratio = math.exp(min_log_ratio + (max_log_ratio - min_log_ratio) * draw())
            columns = round(math.sqrt(area * ratio))
            rows = round(math.sqrt(area / ratio))
            if 0 < columns <= width and 0 < rows <= height:
                top = int(draw() * (height - rows + 1))
                left = int(draw() * (width - columns + 1))
                return top, left, rows, columns
        rows, columns = height, width
        if width / height < self.ratio[0]:
            rows = round(width / self.ratio[0])
        elif width / height > self.ratio[1]:
            columns = round(height * self.ratio[1])
        # An extreme ratio would leave less than one row or column.
        rows, columns = max(rows, 1), max(columns, 1)
        return (height - rows) // 2, (width - columns) // 2, rows, columns


class CenterCrop(ImageMap):
    """Crop the center of an image; a smaller image is padded with black.

    Args:
        size: Height and width of the result; an int sets both.
        key: The field of a dict to crop. None crops the record itself.

    Raises:
        ValueError: An argument is out of range. Raised by the constructor.
        TypeError: An argument has the wrong type; or, raised by `map`, the value is not
            an image.

    Example:
        >>> CenterCrop(8).map(np.zeros((30, 40, 3), np.uint8)).shape
        (8, 8, 3)
    """

    def __init__(self, size: int | Sequence[int], *, key: str | None = None) -> None:
        self.size = as_size(size)
        super().__init__(key)

    def add(self, task: ImageTask) -> ImageTask:
        """Add a crop."""
        rows, columns = self.size
        top, left = _crop_start(task.height, rows), _crop_start(task.width, columns)
        return task.add_crop(top, left, rows, columns)


class Resize(ImageMap):
    """Resize an image.

    Args:
        size: Height and width of the result. An int is the length of the shorter side;
            the aspect ratio of the image decides the other. None needs `max_size`.
        interpolation: Pillow's filter: ``"bilinear"``, ``"bicubic"``, ``"lanczos"``,
            ``"box"``, ``"hamming"`` or ``"nearest"``. All but the last average over all
            pixels that a new pixel covers.
        max_size: If `size` is an int, the maximum length of the longer side, for which
            the shorter side may be less than `size`. If `size` is None, the length of
            the longer side.
        antialias: True or None, because these filters are always antialiased.
        key: The field of a dict to resize. None resizes the record itself.

    Raises:
        ValueError: An argument is out of range. Raised by the constructor.
        TypeError: An argument has the wrong type; or, raised by `map`, the value is not
            an image.

    Example:
        >>> Resize(15).map(np.zeros((30, 40, 3), np.uint8)).shape
        (15, 20, 3)
    """

    def __init__(
        self,
        size: int | Sequence[int] | None,
        interpolation: Any = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
        *,
        key: str | None = None,
    ) -> None:
        if max_size is not None:
            check_integer("max_size", max_size)
        self.size = None if size is None else _shorter_or_both(size)
        self.interpolation = as_filter(interpolation, antialias)
        self.max_size = None if max_size is None else int(max_size)
        super().__init__(key)
        self._check_max_size()

    def _check_max_size(self) -> None:
        size, max_size = self.size, self.max_size
        if size is None and (max_size is None or max_size < 1):
            raise ValueError(
                f"max_size must be at least 1 if size is None, got {max_size}."
            )
        if max_size is None or size is None:
            return
        if isinstance(size, tuple):
            raise ValueError(
                f"max_size must be None if size has both sides, got {max_size}."
            )
        if max_size <= size:
            raise ValueError(
                f"max_size must be more than size, {size}, got {max_size}."
            )

    def add(self, task: ImageTask) -> ImageTask:
        """Add a resize."""
        rows, columns = self._new_sides(task.height, task.width)
        return task.add_resize(rows, columns, FILTERS.index(self.interpolation))

    def _new_sides(self, height: int, width: int) -> tuple[int, int]:
        if isinstance(self.size, tuple):
            return self.size
        short, long = sorted((height, width))
        if self.size is None:
            assert self.max_size is not None
            new_short, new_long = int(self.max_size * short / long), self.max_size
        else:
            new_short, new_long = self.size, int(self.size * long / short)
            if self.max_size is not None and new_long > self.max_size:
                new_short = int(self.max_size * new_short / new_long)
                new_long = self.max_size
        if new_short < 1:
            raise ValueError(
                f"{self!r}: a resized image must have rows and columns, got no"
                f" {'columns' if width < height else 'rows'} for an image of"
                f" {height} x {width}."
            )
        return (new_long, new_short) if width <= height else (new_short, new_long)


class RandomHorizontalFlip(RandomImageMap):
    """Swap left and right of some images.

    Args:
        p: The probability of a swap, from 0 to 1. One number is drawn per image.
        key: The field of a dict to flip. None flips the record itself.

    Raises:
        ValueError: An argument is out of range. Raised by the constructor.
        TypeError: An argument has the wrong type; or, raised by `random_map`, the value
            is not an image.

    Example:
        >>> flip = RandomHorizontalFlip(p=1)
        >>> picture = np.array([[[0], [1], [2]]], np.uint8)
        >>> flip.random_map(picture, np.random.default_rng(0)).tolist()
        [[[2], [1], [0]]]
    """

    def __init__(self, p: float = 0.5, *, key: str | None = None) -> None:
        self.p = float(p)
        if not 0 <= self.p <= 1:
            raise ValueError(f"p must be from 0 to 1, got {p}.")
        super().__init__(key)

    def add(self, task: ImageTask, rng: np.random.Generator) -> ImageTask:
        """Add a flip, or return the task unchanged."""
        return task.add_flip(bool(rng.random() < self.p))


def _crop_start(extent: int, cropped: int) -> int:
    """Return the start of a centered crop; it is negative if the crop is larger."""
    if cropped > extent:
        return -((cropped - extent) // 2)
    return round((extent - cropped) / 2)


def _shorter_or_both(size: int | Sequence[int]) -> int | tuple[int, int]:
    """Return the length of the shorter side, or the height and the width."""
    sides = as_size(size)
    has_both = isinstance(size, Iterable) and len(size) == 2
    return sides if has_both else sides[0]
