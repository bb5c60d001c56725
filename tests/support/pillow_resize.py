"""Resizes pictures like the newest Pillow, with any version of Pillow."""

import PIL
import PIL.Image

VERSION = int(PIL.__version__.partition(".")[0])


def resized(image, size, resampling):
    """Return a picture resized to (columns, rows).

    From version 13 on, Pillow resizes rows before columns if the height shrinks by more
    than twice as much as the width. Older versions resize columns first.
    """
    if VERSION >= 13:
        return image.resize(size, resampling)
    columns, rows = size
    fewer = image.height - rows
    if fewer > 0 and fewer > 2 * (image.width - columns):
        image = image.resize((image.width, rows), resampling)
    else:
        image = image.resize((columns, image.height), resampling)
    return image.resize(size, resampling)
