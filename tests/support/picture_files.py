"""Files of small pictures, of any kind that Pillow writes."""

import io

import numpy as np
import PIL.Image


def file_of(
    height, width, mode="RGB", orientation=1, format="JPEG", keep_rgb=False, **options
):
    """A smooth picture of random colors, the same for a size, as the bytes of a file.

    Args:
        height: Rows.
        width: Columns.
        mode: Pillow's.
        orientation: What EXIF says, in range or not.
        format: Of the file.
        keep_rgb: Whether a JPEG file of mode RGB stores that.
        options: For Pillow.
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
