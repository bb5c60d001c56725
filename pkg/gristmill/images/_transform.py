"""Base classes of image transforms, which add a step to a task."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gristmill._base.argument_checks import check_finite, check_integer
from gristmill.transforms import Map, RandomMap
from gristmill.transforms._decoding import Keyed
from gristmill.transforms._image_task import FILTERS, ImageTask

__all__ = ["ImageMap", "RandomImageMap", "as_filter", "as_range", "as_size"]

# Names of filters by their number in Pillow.
_PILLOW_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


class _ImageTransform(Keyed):
    """An image transform that compares and prints by its arguments."""

    def __repr__(self) -> str:
        arguments = {name.lstrip("_"): value for name, value in vars(self).items()}
        if arguments["key"] is None:
            del arguments["key"]
        texts = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        return f"{type(self).__name__}({texts})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def _task_of(self, value: Any) -> ImageTask:
        """Return the deferred task, or a new task of pixels."""
        if isinstance(value, ImageTask):
            return value
        if not isinstance(value, np.ndarray):
            advice = "" if isinstance(value, dict) else " Decode it first."
            raise TypeError(f"{self._type_error(value, 'a NumPy array')}{advice}")
        try:
            return ImageTask.of_array(value)
        except TypeError as error:
            raise TypeError(f"{self!r}: {error}") from None


class ImageMap(_ImageTransform, Map):
    """Apply the same step to each image."""

    @abc.abstractmethod
    def add(self, task: ImageTask) -> ImageTask:
        """Add this transform's step to a task.

        Args:
            task: The task, which may be changed.

        Returns:
            The task with the step.
        """

    def map(self, element: Any) -> Any:
        """Return the image, or a new dict with the image.

        Args:
            element: The image, uint8 of shape ``(H, W, 1)`` or ``(H, W, 3)``; or a dict
                with it.

        Returns:
            The image, of shape ``(H', W', C)``, or a new dict with it.

        Raises:
            KeyError: The field does not exist.
            TypeError: The image is not a uint8 array of shape (H, W, 1) or (H, W, 3).
        """
        task = self.add(self._task_of(self._value(element)))
        return self._replace_value(element, task.compute())

    def defer(self, element: Any) -> Any:
        """Return the element with a task in place of the image.

        Args:
            element: The image or its `ImageTask`, or a dict with it.

        Returns:
            The task, or a new dict with the task.
        """
        task = self.add(self._task_of(self._value(element)))
        return self._replace_value(element, task.compute_if_smaller())


class RandomImageMap(_ImageTransform, RandomMap):
    """Apply a random step to each image."""

    @abc.abstractmethod
    def add(self, task: ImageTask, rng: np.random.Generator) -> ImageTask:
        """Add this transform's step to a task.

        Args:
            task: The task, which may be changed.
            rng: The generator of the element's random numbers.

        Returns:
            The task with the step.
        """

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        """Return the image, or a new dict with the image.

        Args:
            element: The image, uint8 of shape ``(H, W, 1)`` or ``(H, W, 3)``; or a dict
                with it.
            rng: The generator of the element's random numbers.

        Returns:
            The image, of shape ``(H', W', C)``, or a new dict with it.

        Raises:
            KeyError: The field does not exist.
            TypeError: The image is not a uint8 array of shape (H, W, 1) or (H, W, 3).
            ValueError: `rng` is None, because the sampler has no seed.
        """
        return self._replace_value(element, self._add_random(element, rng).compute())

    def defer(self, element: Any, rng: np.random.Generator) -> Any:
        """Return the element with a task in place of the image.

        Args:
            element: The image or its `ImageTask`, or a dict with it.
            rng: The generator of the element's random numbers.

        Returns:
            The task, or a new dict with the task.
        """
        return self._replace_value(
            element, self._add_random(element, rng).compute_if_smaller()
        )

    def _add_random(self, element: Any, rng: np.random.Generator | None) -> ImageTask:
        if rng is None:
            raise ValueError(
                f"{self!r} needs the random numbers of a record, got rng=None. Give the"
                " sampler or the dataset a seed."
            )
        return self.add(self._task_of(self._value(element)), rng)


def as_size(size: Any) -> tuple[int, int]:
    """Return a height and a width of at least 1; one number sets both."""
    sides = tuple(size) if isinstance(size, Iterable) else (size,)
    if len(sides) not in (1, 2):
        raise ValueError(f"size must be a height and a width, or one int, got {size}.")
    for side in sides:
        check_integer("size", side)
    if min(sides) < 1:
        raise ValueError(f"size must be at least 1, got {size}.")
    return int(sides[0]), int(sides[-1])


def as_range(name: str, value: Any) -> tuple[float, float]:
    """Return two numbers of at least 0, the smaller first; the larger is above 0."""
    if not isinstance(value, Sequence) or len(value) != 2 or isinstance(value, str):
        raise TypeError(f"{name} must be a minimum and a maximum, got {value!r}.")
    for bound in value:
        check_finite(name, bound)
    minimum, maximum = map(float, value)
    if not 0 <= minimum <= maximum or maximum == 0:
        raise ValueError(f"{name} must be a minimum and a maximum, got {value}.")
    return minimum, maximum


def as_filter(interpolation: Any, antialias: Any) -> str:
    """Return a filter's name; accepts filters of torchvision and Pillow, too."""
    if antialias not in (True, None):
        raise ValueError(
            f"antialias must be True or None, got {antialias!r}: images are resized"
            " with Pillow's filters, which are antialiased. Leave it out, or use"
            " interpolation='nearest'."
        )
    name = getattr(interpolation, "value", interpolation)
    if isinstance(name, int) and 0 <= name < len(_PILLOW_FILTERS):
        name = _PILLOW_FILTERS[name]
    name = {"nearest-exact": "nearest"}.get(name, name)
    if name not in FILTERS:
        raise ValueError(
            f"interpolation must be one of {', '.join(FILTERS)}, got {interpolation!r}."
        )
    return str(name)
