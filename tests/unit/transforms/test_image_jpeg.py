"""Tests that JPEG files of every kind match Pillow's pixels or are refused."""

import io

import hypothesis
import hypothesis.strategies as st
import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest

from gristmill.errors import CorruptRecord
from gristmill.transforms import DecodeImage
from support.picture_files import file_of


@hypothesis.given(
    st.builds(
        file_of,
        st.integers(1, 70),
        st.integers(1, 70),
        mode=st.sampled_from(["L", "RGB", "CMYK"]),
        orientation=st.integers(0, 9),
        progressive=st.booleans(),
        keep_rgb=st.booleans(),
        subsampling=st.sampled_from([0, 1, 2]),
        restart_marker_blocks=st.sampled_from([0, 1, 3]),
        quality=st.sampled_from([10, 95]),
    ),
    st.sampled_from([None, 1, 3, 4]),
    st.booleans(),
    st.sampled_from([None, (20, 15)]),
)
@hypothesis.settings(max_examples=200, deadline=None)
def test_pixels_match_pillow(file, channels, orient, size):
    found = DecodeImage(channels, orient=orient, size=size).map(file)
    picture = PIL.Image.open(io.BytesIO(file))
    if orient:
        picture = PIL.ImageOps.exif_transpose(picture)
    kept = "L" if picture.mode == "L" else "RGB"
    picture = picture.convert({None: kept, 1: "L", 3: "RGB", 4: "RGBA"}[channels])
    if size is not None:
        picture = picture.resize(size[::-1], PIL.Image.Resampling.BILINEAR)
    expected = np.asarray(picture).reshape(found.shape)
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert found.flags.writeable


@pytest.mark.parametrize("progressive", [False, True])
def test_data_after_the_picture_is_ignored(progressive):
    file = file_of(40, 50, progressive=progressive)
    np.testing.assert_array_equal(
        DecodeImage().map(file + b"more\xff\xd9"), DecodeImage().map(file)
    )


@pytest.mark.parametrize("progressive", [False, True])
def test_truncated_files_are_refused(progressive):
    file = file_of(40, 50, progressive=progressive)
    begin = file.index(b"\xff\xda")
    for size in range(begin, len(file) - 2, 7):
        with pytest.raises(CorruptRecord, match=f"^{size} bytes cannot be decoded"):
            DecodeImage().map(file[:size])


def test_damaged_data_is_refused_or_decoded():
    rng = np.random.default_rng(0)
    file = file_of(40, 50, restart_marker_blocks=2)
    refused = 0
    for _ in range(300):
        damaged = bytearray(file)
        damaged[rng.integers(2, len(file))] ^= 1 << rng.integers(8)
        try:
            assert DecodeImage(3).map(damaged).shape[2] == 3
        except CorruptRecord as error:
            refused += 1
            assert "cannot be decoded as an image" in str(error)
    assert 30 < refused < 300
