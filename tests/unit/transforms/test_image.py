"""Tests that DecodeImage gives Pillow's pixels in TensorFlow's shapes."""

import builtins
import functools
import io
import pickle
import struct
import zlib

import numpy as np
import PIL.Image
import pytest
import sklearn.datasets
from array_record.python import array_record_module

import gristmill
from gristmill.errors import CorruptRecord
from gristmill.transforms import Batch, DecodeImage

RESAMPLING = PIL.Image.Resampling.BILINEAR


@functools.cache
def photograph():
    """Return a picture of shape (427, 640, 3) from scikit-learn."""
    return PIL.Image.fromarray(sklearn.datasets.load_sample_images().images[0])


def encoded(image, format="PNG", **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def small(mode):
    return photograph().resize((30, 20)).convert(mode)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "BMP", "TIFF"])
def test_pixels_of_each_format_match_pillow(format):
    file = encoded(photograph(), format)
    found = DecodeImage().map(file)
    expected = np.asarray(PIL.Image.open(io.BytesIO(file)))
    assert (found.dtype, found.shape) == (np.uint8, (427, 640, 3))
    np.testing.assert_array_equal(found, expected)
    assert found.flags.writeable


@pytest.mark.parametrize(
    ("mode", "format", "kept"),
    [
        ("1", "PNG", "L"),
        ("L", "PNG", "L"),
        ("L", "JPEG", "L"),
        ("LA", "PNG", "LA"),
        ("P", "PNG", "RGB"),
        ("RGB", "PNG", "RGB"),
        ("RGBA", "PNG", "RGBA"),
        ("RGB", "JPEG", "RGB"),
        ("CMYK", "JPEG", "RGB"),
        ("CMYK", "TIFF", "RGB"),
    ],
)
@pytest.mark.parametrize("channels", [None, 1, 3, 4])
def test_channels_are_kept_or_converted(mode, format, kept, channels):
    file = encoded(small(mode), format)
    found = DecodeImage(channels).map(file)
    wanted = {None: kept, 1: "L", 3: "RGB", 4: "RGBA"}[channels]
    expected = np.asarray(PIL.Image.open(io.BytesIO(file)).convert(wanted))
    np.testing.assert_array_equal(found, expected.reshape(20, 30, -1))


def test_palettes_with_alpha_become_rgba():
    file = encoded(small("P"), transparency=bytes(range(256)))
    found = DecodeImage().map(file)
    expected = np.asarray(PIL.Image.open(io.BytesIO(file)).convert("RGBA"))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(DecodeImage(3).map(file), expected[..., :3])


def test_floats_are_between_0_and_1():
    file = encoded(small("RGB"))
    found = DecodeImage(dtype=np.float32).map(file)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, DecodeImage().map(file) / 255, atol=1e-7)


class TestSixteenBits:
    GRAY = (np.arange(600, dtype=np.uint16) * 109).reshape(20, 30)

    @pytest.fixture
    def file(self):
        return encoded(PIL.Image.fromarray(self.GRAY))

    def test_uint8_keeps_high_bytes(self, file):
        np.testing.assert_array_equal(DecodeImage().map(file)[..., 0], self.GRAY // 256)

    def test_float32_keeps_all_bits(self, file):
        found = DecodeImage(dtype=np.float32).map(file)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found[..., 0], self.GRAY / 65535, atol=1e-7)

    def test_gray_becomes_rgba(self, file):
        gray = (self.GRAY // 256)[..., np.newaxis]
        opaque = np.full_like(gray, 255)
        np.testing.assert_array_equal(
            DecodeImage(4).map(file), np.concatenate((gray, gray, gray, opaque), 2)
        )
        assert (DecodeImage(4, np.float32).map(file)[..., 3] == 1).all()

    def test_gray_is_resized(self, file):
        found = DecodeImage(size=(10, 15)).map(file)
        expected = self.GRAY.reshape(10, 2, 15, 2).mean((1, 3)) / 256
        assert np.abs(found[1:-1, 1:-1, 0] - expected[1:-1, 1:-1]).max() < 16


class TestSize:
    def test_size_is_height_and_width(self):
        found = DecodeImage(size=(32, 48)).map(encoded(photograph()))
        expected = np.asarray(photograph().resize((48, 32), RESAMPLING))
        np.testing.assert_array_equal(found, expected)

    def test_draft_differs_little(self):
        file = encoded(photograph(), "JPEG", quality=90)
        exact = DecodeImage(size=(32, 48)).map(file).astype(int)
        draft = DecodeImage(size=(32, 48), draft=True).map(file).astype(int)
        assert draft.shape == (32, 48, 3)
        assert 0 < np.abs(exact - draft).mean() < 4

    def test_draft_has_no_effect_on_png(self):
        file = encoded(photograph())
        np.testing.assert_array_equal(
            DecodeImage(size=(9, 9), draft=True).map(file),
            DecodeImage(size=(9, 9)).map(file),
        )


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orient_follows_exif(orientation):
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    file = encoded(photograph(), "JPEG", exif=exif)
    plain = DecodeImage().map(file)
    assert plain.shape == (427, 640, 3)
    turned = plain
    if orientation > 4:
        turned = turned.swapaxes(0, 1)
    flips = {2: (1,), 3: (0, 1), 4: (0,), 6: (1,), 7: (0, 1), 8: (0,)}
    turned = np.flip(turned, flips.get(orientation, ()))
    np.testing.assert_array_equal(DecodeImage(orient=True).map(file), turned)
    sized = DecodeImage(orient=True, size=(50, 20), draft=True).map(file)
    assert sized.shape == (50, 20, 3)


def png_of(width, height):
    """Return a PNG file with this size in its header and almost no data."""

    def chunk(kind, data):
        checked = kind + data
        return (
            struct.pack(">I", len(data))
            + checked
            + struct.pack(">I", zlib.crc32(checked))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b""))
    return b"\x89PNG\r\n\x1a\n" + data + chunk(b"IEND", b"")


class TestErrors:
    def test_file_of_unknown_format_is_refused(self):
        with pytest.raises(CorruptRecord) as caught:
            DecodeImage().map(b"no image")
        assert str(caught.value) == (
            "8 bytes cannot be decoded as an image: Pillow does not support the format"
        )

    @pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
    def test_truncated_images_are_refused(self, format):
        file = encoded(photograph(), format)
        for size in (0, 4, 20, len(file) // 2, len(file) - 200):
            with pytest.raises(CorruptRecord, match=f"^{size} bytes cannot be decoded"):
                DecodeImage().map(file[:size])

    def test_damaged_images_are_refused_or_decoded(self):
        rng = np.random.default_rng(0)
        file = encoded(small("RGB"))
        for _ in range(200):
            damaged = bytearray(file)
            damaged[rng.integers(8, len(file))] ^= 1 << rng.integers(8)
            try:
                DecodeImage(3).map(damaged)
            except CorruptRecord as error:
                assert "cannot be decoded as an image" in str(error)

    def test_bombs_are_not_decoded(self):
        file = encoded(small("RGB"))
        assert DecodeImage(max_pixels=600).map(file).shape == (20, 30, 3)
        with pytest.raises(
            CorruptRecord, match=r"30 x 20 pixels, more than max_pixels"
        ):
            DecodeImage(max_pixels=599).map(file)
        with pytest.raises(CorruptRecord, match="decompression bomb"):
            DecodeImage(max_pixels=10**12).map(png_of(60_000, 60_000))

    def test_jpeg_bombs_are_not_decoded(self, monkeypatch):
        file = encoded(small("RGB"), "JPEG")
        size = file.index(b"\xff\xc0") + 5
        bomb = file[:size] + b"\xff\xdc\xff\xdc" + file[size + 4 :]
        for draft in ({}, {"size": (8, 8), "draft": True}):
            with pytest.raises(CorruptRecord, match="65500 x 65500 pixels, more than"):
                DecodeImage(**draft).map(bomb)
        with pytest.raises(CorruptRecord, match="decompression bomb"):
            DecodeImage(max_pixels=10**12).map(bomb)
        monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 299)
        with pytest.raises(CorruptRecord, match="decompression bomb"):
            DecodeImage().map(file)
        monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", None)
        assert DecodeImage().map(file).shape == (20, 30, 3)

    def test_float_samples_are_refused(self):
        file = encoded(PIL.Image.fromarray(np.zeros((2, 2), np.float32)), "TIFF")
        with pytest.raises(CorruptRecord, match="samples of Pillow's mode F, expected"):
            DecodeImage().map(file)

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"channels": 2}, "channels must be None, 1, 3 or 4, got 2"),
            ({"dtype": np.int8}, "must be uint8 or float32"),
            ({"size": (0, 3)}, "must be a height and a width"),
            ({"size": (3,)}, "must be a height and a width"),
            ({"draft": True}, "draft=True needs size"),
            ({"max_pixels": 0}, "max_pixels must be at least 1, got 0"),
        ],
    )
    def test_bad_arguments_are_refused(self, arguments, text):
        with pytest.raises(ValueError, match=text):
            DecodeImage(**arguments)

    def test_missing_pillow_names_extra(self, monkeypatch):
        real = builtins.__import__

        def without_pillow(name, *rest):
            if name.startswith("PIL"):
                raise ModuleNotFoundError(f"No module named {name!r}", name="PIL")
            return real(name, *rest)

        monkeypatch.setattr(builtins, "__import__", without_pillow)
        with pytest.raises(ImportError, match=r"pip install 'gristmill\[image\]'"):
            DecodeImage()


def test_pickle_and_repr_keep_arguments():
    decoder = DecodeImage(
        3, np.float32, key="i", size=(2, 3), draft=True, orient=True, max_pixels=5
    )
    assert (
        repr(pickle.loads(pickle.dumps(decoder)))
        == repr(decoder)
        == (
            "DecodeImage(channels=3, dtype='float32', key='i', size=(2, 3), draft=True,"
            " orient=True, max_pixels=5)"
        )
    )
    assert repr(DecodeImage()) == "DecodeImage()"


def test_key_selects_one_field():
    found = DecodeImage(key="image").map({"image": encoded(small("L")), "label": 3})
    assert (found["image"].shape, found["label"]) == ((20, 30, 1), 3)


@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.multiprocess)]
)
def test_loader_decodes_jpeg_in_array_record(tmp_path, workers):
    images = [photograph().rotate(15 * i).resize((64, 48)) for i in range(12)]
    files = [encoded(image, "JPEG") for image in images]
    path = str(tmp_path / "images.array_record")
    writer = array_record_module.ArrayRecordWriter(path, "group_size:1")
    for file in files:
        writer.write(file)
    writer.close()
    source = gristmill.ArrayRecordDataSource(path)
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.IndexSampler(
            len(source), gristmill.NoSharding(), shuffle=True, num_epochs=1, seed=3
        ),
        operations=[DecodeImage(channels=3), Batch(3)],
        worker_count=workers,
    )
    found = {image.tobytes() for batch in loader for image in batch}
    expected = {np.asarray(PIL.Image.open(io.BytesIO(f))).tobytes() for f in files}
    assert found == expected
