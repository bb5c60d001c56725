"""The final conversion of pixels: dtype and layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._base.argument_checks import check_finite
from gristmill.images._transform import ImageMap
from gristmill.transforms._image_task import ImageTask, Scaling, bfloat16

__all__ = ["Normalize", "ToLayout"]

_DTYPES = ("float32", "float16", "bfloat16")


class Normalize(ImageMap):
    """Convert bytes to floats: ``(byte / 255 - mean) / std``.

    Equal to torchvision's ``ToDtype(torch.float32, scale=True)`` followed by
    ``Normalize(mean, std)``. Mean 0 and std 1 only scale to [0, 1].

    Args:
        mean: One value per channel for pixels in [0, 1], or one value for all.
        std: As many values as `mean`, none of them 0.
        dtype: float32, float16 or bfloat16 (from ml_dtypes, or by name). Values are
            computed in float32, and rounded to the nearest, ties to even.
        key: The field of a dict to convert. None converts the record itself.

    Raises:
        ImportError: bfloat16 needs ml_dtypes, which is not installed. Raised by the
            constructor.
        ValueError: An argument is out of range, raised by the constructor; or the
            number of means does not match the image's channels, raised by `map`.
        TypeError: An argument has the wrong type; or, raised by `map`, the value is not
            an image.

    Example:
        >>> picture = np.array([[[0], [255]]], np.uint8)
        >>> Normalize([0.5], [0.25]).map(picture).ravel()
        array([-2.,  2.], dtype=float32)
    """

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        dtype: npt.DTypeLike = np.float32,
        key: str | None = None,
    ) -> None:
        means, stds = _as_floats("mean", mean), _as_floats("std", std)
        if len(means) != len(stds) or not means:
            raise ValueError(
                "mean and std must have one value for each channel, got"
                f" {len(means)} and {len(stds)}."
            )
        if 0 in stds:
            raise ValueError(f"std must not contain 0, got {stds}.")
        self.scaling = Scaling(means, stds, _dtype_name(dtype))
        super().__init__(key)

    def __repr__(self) -> str:
        scaling = self.scaling
        key = "" if self._key is None else f", key={self._key!r}"
        return (
            f"Normalize(mean={scaling.mean}, std={scaling.std},"
            f" dtype={scaling.dtype!r}{key})"
        )

    def add(self, task: ImageTask) -> ImageTask:
        """Add the conversion to floats."""
        return task.add_scaling(self.scaling)


class ToLayout(ImageMap):
    """Change the layout of an image of shape ``(H, W, C)``, of any dtype.

    Put it last: the other transforms take ``(H, W, C)``.

    Args:
        layout: ``"CHW"`` for shape ``(C, H, W)``; ``"HWC"`` leaves images unchanged.
        key: The field of a dict to convert. None converts the record itself.

    Raises:
        ValueError: `layout` has another value. Raised by the constructor.
        TypeError: The value is not an array of three dimensions. Raised by `map`.

    Example:
        >>> ToLayout("CHW").map(np.zeros((30, 40, 3), np.float32)).shape
        (3, 30, 40)
    """

    def __init__(self, layout: str, *, key: str | None = None) -> None:
        if layout not in ("CHW", "HWC"):
            raise ValueError(f"layout must be 'CHW' or 'HWC', got {layout!r}.")
        self.layout = layout
        super().__init__(key)

    def map(self, element: Any) -> Any:
        """Return the image, or a new dict with the image.

        Args:
            element: The image, of shape ``(H, W, C)``, or a dict with it.

        Returns:
            The image, of shape ``(C, H, W)`` for "CHW", or a new dict with it.

        Raises:
            KeyError: The field does not exist.
            TypeError: The value is not an array of three dimensions.
        """
        pixels = self._value(element)
        if not isinstance(pixels, np.ndarray) or pixels.ndim != 3:
            raise self._type_error(pixels, "an array of three dimensions")
        if self.layout == "CHW":
            pixels = np.ascontiguousarray(np.moveaxis(pixels, 2, 0))
        return self._replace_value(element, pixels)

    def defer(self, element: Any) -> Any:
        """Return the element with a task in place of the image."""
        task = self._value(element)
        if not isinstance(task, ImageTask):
            return self.map(element)
        if self.layout == "CHW" and task.chw:
            return self.map(self._replace_value(element, task.compute()))
        return self._replace_value(element, self.add(task))

    def add(self, task: ImageTask) -> ImageTask:
        """Add the layout."""
        task.chw |= self.layout == "CHW"
        return task


def _as_floats(name: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise TypeError(
            f"{name} must be a number for each channel, got {type(values).__name__}."
        )
    numbers = tuple(values)
    for number in numbers:
        check_finite(name, number)
    return tuple(map(float, numbers))


def _dtype_name(dtype: npt.DTypeLike) -> str:
    name = "bfloat16" if dtype == "bfloat16" else np.dtype(dtype).name
    if name not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {dtype}.")
    if name == "bfloat16":
        bfloat16()
    return name
