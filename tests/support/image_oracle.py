"""Pictures computed by Pillow and NumPy, step by step, from the numbers of their plans.

The slow twin of ``_core.render_images``: same arguments, same result.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image

FILTERS = ("NEAREST", "BOX", "BILINEAR", "HAMMING", "BICUBIC", "LANCZOS")
TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


def picture_of(
    data: Any, channels: int, least: tuple[int, int] | None
) -> PIL.Image.Image:
    """A picture of a file, of `least` size or more if it is given, or of an array."""
    if isinstance(data, np.ndarray):
        return PIL.Image.fromarray(data[..., 0] if channels == 1 else data)
    picture: Any = PIL.Image.open(io.BytesIO(data))
    if least is not None:
        picture.draft(None, least)
    return picture.convert({1: "L", 3: "RGB"}[channels])


def render_one(
    data: Any,
    plan: Sequence[int],
    channels: int,
    filter: int,
    draft: bool,
    shape: Sequence[int],
) -> npt.NDArray[np.uint8]:
    """The window of a picture, of shape (height, width, C).

    A draft is of the whole picture.
    """
    top, left, height, width, rows, columns, y, x, flip, orientation = map(int, plan)
    least = (rows, columns) if orientation > 4 else (columns, rows)
    picture = picture_of(data, channels, least if draft else None)
    if orientation > 1:
        picture = picture.transpose(PIL.Image.Transpose[TURNS[orientation]])
    if draft:
        width, height = picture.size
    picture = picture.crop((left, top, left + width, top + height))
    if picture.size != (columns, rows):
        resampling = PIL.Image.Resampling[FILTERS[filter]]
        picture = picture.resize((columns, rows), resampling)
    picture = picture.crop((x, y, x + shape[1], y + shape[0]))
    if flip:
        picture = picture.transpose(PIL.Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(picture).reshape(*shape, channels)


def render_images(
    images: Sequence[Any],
    plans: npt.NDArray[np.int32],
    out: npt.NDArray[Any],
    *,
    filter: int = 2,
    table: npt.NDArray[Any] | None = None,
    chw: bool = False,
    draft: bool = False,
    threads: int = 1,
) -> None:
    """Fill `out` with a batch of pictures."""
    channels, *shape = out.shape[1:] if chw else np.roll(out.shape[1:], 1)
    for row, data, plan in zip(out, images, plans, strict=True):
        pixels: npt.NDArray[Any] = render_one(
            data, plan, channels, filter, draft, shape
        )
        if table is not None:
            pixels = table[np.arange(channels), pixels]
        row[:] = pixels.transpose(2, 0, 1) if chw else pixels
