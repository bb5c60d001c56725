"""Files of small pictures, in any format that Pillow writes."""

import io

import numpy as np
import PIL.Image


def file_of(
    height, width, mode="RGB", orientation=1, format="JPEG", keep_rgb=False, **options
):
    """Return the bytes of a smooth picture; its colors depend only on the size.

    Args:
        height: Number of rows.
        width: Number of columns.
        mode: Pillow's image mode.
        orientation: EXIF orientation, valid or not.
        format: File format.
        keep_rgb: Whether a JPEG file of mode RGB stores RGB.
        options: Further options of Pillow.
    """
    rng = np.random.default_rng([height, width])
    small = PIL.Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8))
    picture = small.resize((width, height), PIL.Image.Resampling.BICUBIC)
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    if keep_rgb and mode == "RGB":
        options |= {"keep_rgb": True, "subsampling": 0}
    file = io.BytesIO()
    picture.convert(mode).save(file, format, exif=exif, **options)
    return file.getvalue()
