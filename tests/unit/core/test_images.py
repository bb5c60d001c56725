"""Compares pictures that the core renders with those of Pillow."""

import io
import random

import numpy as np
import pytest

from gristmill import _core, errors
from support.pillow_resize import resized

Image = pytest.importorskip("PIL.Image")

FILTERS = ["NEAREST", "BOX", "BILINEAR", "HAMMING", "BICUBIC", "LANCZOS"]
TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
WAYS = {
    "444": {"subsampling": 0},
    "422": {"subsampling": 1},
    "420": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_blocks": 3},
    "optimized": {"optimize": True, "subsampling": 0, "quality": 30},
    "gray": {},
}


def picture(height, width, seed=0):
    """Return waves of color with noise."""
    rng = np.random.default_rng(seed)
    y, x = np.ogrid[:height, :width, :1][:2]
    waves = 128 + 90 * np.sin(y / 9 + np.arange(3)) * np.cos(x / 7 - np.arange(3))
    noisy = waves + rng.normal(0, 25, (height, width, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def jpeg(pixels, mode="RGB", **options):
    file = io.BytesIO()
    options = {"quality": 90, **options}
    Image.fromarray(pixels).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def by_pillow(file, plan, shape, filter, mode="RGB"):
    top, left, height, width, rows, columns, y, x, flip, orientation = plan
    image = Image.open(io.BytesIO(file)).convert(mode)
    if orientation in TURNS:
        image = image.transpose(Image.Transpose[TURNS[orientation]])
    image = image.crop((left, top, left + width, top + height))
    image = resized(image, (columns, rows), Image.Resampling[FILTERS[filter]])
    image = image.crop((x, y, x + shape[1], y + shape[0]))
    pixels = np.asarray(image).reshape(shape)
    return pixels[:, ::-1] if flip else pixels


def some_plan(rng, height, width, orientation):
    if orientation >= 5:
        height, width = width, height
    crop = rng.randint(1, height), rng.randint(1, width)
    rows, columns = (rng.choice([1, side, 21, 64, 224]) for side in crop)
    shape = (
        max(1, rows + rng.choice([0, -5, 3])),
        max(1, columns + rng.choice([0, -6, 4])),
    )
    plan = (
        *(rng.randint(0, height - crop[0]), rng.randint(0, width - crop[1]), *crop),
        *(rows, columns, (rows - shape[0]) // 2, (columns - shape[1]) // 2),
        *(rng.randint(0, 1), orientation),
    )
    return plan, shape


def render(images, plans, shape, **options):
    out = np.full((len(images), *shape), 77, options.pop("dtype", np.uint8))
    _core.render_images(images, np.array(plans, np.int32), out, **options)
    return out


@pytest.mark.parametrize("way", WAYS)
def test_render_file_equals_pillow(way):
    rng = random.Random(way)
    sides = [1, 2, 7, 8, 16, 17, 31, 33, 131, 250]
    for seed in range(40):
        height, width = rng.choice(sides), rng.choice(sides)
        color = "L" if way == "gray" else "RGB"
        file = jpeg(picture(height, width, seed), color, **WAYS[way])
        plan, shape = some_plan(rng, height, width, rng.choice([1, *range(1, 9)]))
        filter = rng.randrange(6)
        mode, channels = rng.choice([("RGB", 3), ("RGB", 3), ("L", 1)])
        shape = *shape, channels
        found = render([file], [plan], shape, filter=filter)[0]
        expected = by_pillow(file, plan, shape, filter, mode)
        np.testing.assert_array_equal(found, expected, str((height, width, plan)))


def test_render_pixels_equals_pillow():
    pixels = picture(40, 60)
    plan, shape = (3, 5, 30, 50, 20, 33, -1, 2, 1, 6), (24, 31)
    plan = (5, 3, 50, 30, 33, 20, -1, 2, 1, 6)
    turned = np.rot90(pixels, -1)
    image = Image.fromarray(turned).crop((3, 5, 33, 55))
    image = resized(image, (20, 33), Image.Resampling.BILINEAR)
    expected = np.asarray(image.crop((2, -1, 2 + shape[1], shape[0] - 1)))[:, ::-1]
    for channels in (1, 2, 3):
        part = np.ascontiguousarray(pixels[:, :, :channels])
        found = render([part], [plan], (*shape, channels))[0]
        np.testing.assert_array_equal(found, expected[:, :, :channels])


def test_table_maps_values_in_both_layouts():
    rng = np.random.default_rng(0)
    file = jpeg(picture(30, 40))
    plan = (0, 0, 30, 40, 10, 12, -2, 0, 0, 1)
    plain = render([file], [plan], (14, 12, 3))[0]
    for dtype in (np.uint8, np.float16, np.float32):
        table = rng.integers(0, 255, (3, 256)).astype(dtype)
        expected = np.stack([table[c][plain[:, :, c]] for c in range(3)], -1)
        found = render([file], [plan], (14, 12, 3), dtype=dtype, table=table)
        np.testing.assert_array_equal(found[0], expected)
        options = {"dtype": dtype, "table": table, "chw": True}
        found = render([file], [plan], (3, 14, 12), **options)
        np.testing.assert_array_equal(found[0], expected.transpose(2, 0, 1))
    found = render([file], [plan], (3, 14, 12), chw=True)
    np.testing.assert_array_equal(found[0], plain.transpose(2, 0, 1))


@pytest.mark.parametrize("size", [(24, 20), (48, 50), (99, 101), (300, 200)])
def test_draft_equals_pillow(size):
    file = jpeg(picture(203, 330))
    image = Image.open(io.BytesIO(file))
    image.draft(None, (size[1], size[0]))
    expected = np.asarray(resized(image, size[::-1], Image.Resampling.BILINEAR))
    plan = (0, 0, 203, 330, *size, 0, 0, 0, 1)
    found = render([file], [plan], (*size, 3), draft=True)
    np.testing.assert_array_equal(found[0], expected)


def test_threads_render_same_batch():
    images = [jpeg(picture(50 + i, 60, i)) for i in range(20)]
    plans = [(i, 2, 40, 50, 33, 35, 0, 0, i % 2, 1) for i in range(20)]
    one = render(images, plans, (33, 35, 3))
    many = render(images, plans, (33, 35, 3), threads=7)
    np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize("threads", [1, 3])
def test_error_has_first_bad_file_and_earlier_are_rendered(threads):
    good = jpeg(picture(50, 60))
    images = [good] * 4 + [good[: len(good) // 2], good, b"no picture", good]
    plans = [(0, 0, 8, 60, 8, 60, 0, 0, 0, 1)] * len(images)
    out = np.zeros((len(images), 8, 60, 3), np.uint8)
    with pytest.raises(errors.CorruptRecord, match="JPEG") as caught:
        plans = np.array(plans, np.int32)
        _core.render_images(images, plans, out, threads=threads)
    assert caught.value.position == 4
    assert (out[:4] == by_pillow(good, plans[0], (8, 60, 3), 2)).all()


def exif(orientation, order="little"):
    mark = b"II*\0" if order == "little" else b"MM\0*"
    entries = [(0x0100, 4, 77), (0x0112, 3, orientation)]
    directory = len(entries).to_bytes(2, order)
    for tag, kind, value in entries:
        size = 2 if kind == 3 else 4
        directory += tag.to_bytes(2, order) + kind.to_bytes(2, order)
        directory += (1).to_bytes(4, order) + value.to_bytes(size, order).ljust(4)
    return b"Exif\0\0" + mark + (8).to_bytes(4, order) + directory + bytes(4)


def test_header_has_size_channels_and_orientation():
    header = _core.image_header
    assert header(jpeg(picture(30, 41))) == ("jpeg", 30, 41, 3, 1)
    gray = jpeg(picture(1, 2), "L", progressive=True)
    assert header(memoryview(gray)) == ("jpeg", 1, 2, 1, 1)
    for order in ("little", "big"):
        for orientation in range(10):
            file = jpeg(picture(30, 41), exif=exif(orientation, order))
            seen = Image.open(io.BytesIO(file)).getexif().get(0x0112)
            assert seen == orientation
            expected = orientation if 1 <= orientation <= 8 else 1
            assert header(file) == ("jpeg", 30, 41, 3, expected)
    xmp = b'<x tiff:Orientation="8"/>'
    assert header(jpeg(picture(3, 4), xmp=xmp))[4] == 8
    assert header(jpeg(picture(3, 4), xmp=xmp, exif=exif(3)))[4] == 3


def test_header_of_other_formats_is_empty():
    png = io.BytesIO()
    Image.fromarray(picture(3, 4)).save(png, "PNG")
    cmyk = jpeg(picture(3, 4), "CMYK")
    for data in (b"", b"\xff", b"GIF89a", png.getvalue(), cmyk):
        assert _core.image_header(data) == ("", 0, 0, 0, 1)


def test_truncated_header_raises():
    file = jpeg(picture(30, 41))
    for size in (3, 20, 100, 300):
        with pytest.raises(errors.CorruptRecord, match="JPEG file ends"):
            _core.image_header(file[:size])


def test_render_wrong_arguments_raise():
    file = jpeg(picture(30, 41))
    plan = [0, 0, 30, 41, 8, 9, 0, 0, 0, 1]
    with pytest.raises(errors.CorruptRecord, match="not within the picture"):
        render([file], [[1, *plan[1:]]], (8, 9, 3))
    with pytest.raises(ValueError, match="orientation of 1 to 8"):
        render([file], [[*plan[:9], 9]], (8, 9, 3))
    with pytest.raises(ValueError, match="a plan 10 numbers"):
        render([file], [plan, plan], (8, 9, 3))
    with pytest.raises(ValueError, match=r"shape \(H, W, 3\)"):
        render([np.zeros((30, 41, 1), np.uint8)], [plan], (8, 9, 3))
    with pytest.raises(ValueError, match="uint8"):
        render([file], [plan], (8, 9, 3), dtype=np.float32)
    with pytest.raises(ValueError, match="table"):
        render([file], [plan], (8, 9, 3), table=np.zeros((1, 256), np.uint8))
    with pytest.raises(TypeError, match="bytes-like"):
        render([file.hex()], [plan], (8, 9, 3))
