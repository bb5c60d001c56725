"""Tests that crops, sizes and flips match torchvision's for Pillow images."""

import pickle

import hypothesis
import hypothesis.strategies as st
import numpy as np
import PIL.Image
import pytest

from gristmill import images
from support.pillow_resize import resized


def picture(height, width, channels=3):
    rng = np.random.default_rng(height * 1000 + width)
    return rng.integers(0, 256, (height, width, channels), np.uint8)


def pillow(pixels):
    return PIL.Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def array(image):
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


class Draws:
    """Returns preset numbers in place of random ones."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def random(self):
        return self.draws.pop(0)


class TestRandomResizedCrop:
    def test_draws_area_and_ratio_then_top_and_left(self):
        # A quarter of 1200 pixels, as wide as high; 14 tops, 24 lefts.
        rng = Draws((0.25 - 0.08) / 0.92, 0.5, 3.01 / 14, 5.99 / 24)
        pixels = picture(30, 40)
        found = images.RandomResizedCrop((8, 9)).random_map(pixels, rng)
        part = pillow(pixels).crop((5, 3, 5 + 17, 3 + 17))
        expected = resized(part, (9, 8), PIL.Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(found, array(expected))
        assert not rng.draws

    def test_extreme_draws_give_bounds_of_scale_and_ratio(self):
        pixels = picture(100, 100)
        crop = images.RandomResizedCrop(8, (0.25, 1), (0.25, 4))
        # First the highest box with a quarter of the pixels, then the widest.
        for draw, box in ((0.0, (0, 0, 25, 100)), (1 - 2**-53, (0, 75, 100, 100))):
            found = crop.random_map(pixels, Draws(0.0, draw, draw, draw))
            part = pillow(pixels).crop(box)
            expected = resized(part, (8, 8), PIL.Image.BILINEAR)
            np.testing.assert_array_equal(found, array(expected))

    @pytest.mark.parametrize(
        ("height", "width", "ratio", "box"),
        [
            # Boxes are (left, top, right, bottom), from torchvision.
            (30, 200, (3 / 4, 4 / 3), (80, 0, 120, 30)),
            (200, 30, (3 / 4, 4 / 3), (0, 80, 30, 120)),
            (30, 31, (3 / 4, 4 / 3), (0, 0, 31, 30)),
        ],
    )
    def test_ten_draws_that_do_not_fit_give_center_crop(
        self, height, width, ratio, box
    ):
        rng = Draws(*(0.0, 0.5) * 10)
        pixels = picture(height, width)
        crop = images.RandomResizedCrop(8, (50, 60), ratio)
        part = pillow(pixels).crop(box)
        expected = resized(part, (8, 8), PIL.Image.BILINEAR)
        np.testing.assert_array_equal(crop.random_map(pixels, rng), array(expected))
        assert not rng.draws

    @hypothesis.given(
        st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32), st.data()
    )
    @hypothesis.settings(max_examples=50, deadline=None)
    def test_crop_lies_inside_the_picture(self, height, width, seed, data):
        ratio = data.draw(st.sampled_from([(3 / 4, 4 / 3), (0.001, 0.01), (50, 99)]))
        rng = np.random.default_rng(seed)
        crop = images.RandomResizedCrop(4, (0, 1), ratio, "nearest")
        found = crop.random_map(np.full((height, width, 1), 255, np.uint8), rng)
        np.testing.assert_array_equal(found, np.full((4, 4, 1), 255))


class TestCenterCrop:
    @pytest.mark.parametrize(
        ("height", "width", "size", "top", "left"),
        [
            (30, 40, 8, 11, 16),
            (30, 40, (9, 7), 10, 16),  # 10.5 and 16.5 are rounded to even.
            (31, 41, (8, 8), 12, 16),  # So are 11.5 and 16.5.
            (5, 40, (8, 8), -1, 16),  # One row of black above, two below.
            (6, 6, (9, 8), -1, -1),
            (1, 1, (1, 1), 0, 0),
        ],
    )
    def test_position_matches_torchvision(self, height, width, size, top, left):
        pixels = picture(height, width)
        rows, columns = size if isinstance(size, tuple) else (size, size)
        expected = pillow(pixels).crop((left, top, left + columns, top + rows))
        found = images.CenterCrop(size).map(pixels)
        np.testing.assert_array_equal(found, array(expected))


class TestResize:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (((20, 50),), (20, 50)),
            ((np.array((20, 50)),), (20, 50)),
            ((15,), (15, 20)),
            (([15],), (15, 20)),
            ((7,), (7, 9)),
            ((15, "bilinear", 16), (12, 16)),
            ((None, "bilinear", 17), (12, 17)),
            ((60,), (60, 80)),
        ],
    )
    def test_output_sizes(self, arguments, expected):
        resize = images.Resize(*arguments)
        assert resize.map(picture(30, 40)).shape == (*expected, 3)
        if expected != (20, 50):
            assert resize.map(picture(40, 30)).shape == (*expected[::-1], 3)

    @hypothesis.given(
        st.integers(1, 50),
        st.integers(1, 50),
        st.integers(1, 50),
        st.integers(1, 50),
        st.sampled_from([1, 3]),
        st.sampled_from("nearest box bilinear hamming bicubic lanczos".split()),
    )
    @hypothesis.settings(max_examples=200, deadline=None)
    def test_pixels_match_pillow(self, height, width, rows, columns, channels, name):
        pixels = picture(height, width, channels)
        found = images.Resize((rows, columns), name).map(pixels)
        resampling = PIL.Image.Resampling[name.upper()]
        expected = array(resized(pillow(pixels), (columns, rows), resampling))
        np.testing.assert_array_equal(found, expected)

    def test_filter_names_of_other_libraries_are_accepted(self):
        assert images.Resize(3, PIL.Image.Resampling.BICUBIC) == images.Resize(
            3, "bicubic"
        )
        assert images.Resize(3, "nearest-exact") == images.Resize(3, "nearest")

    def test_empty_result_is_refused(self):
        with pytest.raises(ValueError, match="got no rows for an image of 1 x 90"):
            images.Resize(None, max_size=9).map(picture(1, 90))


class TestRandomHorizontalFlip:
    @pytest.mark.parametrize("draw", [0.0, 0.29, 0.3, 0.9])
    def test_flips_if_draw_is_below_p(self, draw):
        pixels = picture(5, 7)
        found = images.RandomHorizontalFlip(0.3).random_map(pixels, Draws(draw))
        expected = pixels[:, ::-1] if draw < 0.3 else pixels
        np.testing.assert_array_equal(found, expected)
        found[:] = 0  # The result must be a copy.
        assert pixels.any()


def test_flip_without_generator_asks_for_seed():
    with pytest.raises(ValueError, match="Give the sampler or the dataset a seed"):
        images.RandomHorizontalFlip().random_map(picture(2, 2), None)


TRANSFORMS = [
    images.RandomResizedCrop(224, (0.5, 1), interpolation="bicubic", key="image"),
    images.CenterCrop((3, 4)),
    images.Resize(8, max_size=9, key="i"),
    images.RandomHorizontalFlip(0.25),
]


def test_repr_shows_arguments():
    assert [repr(transform) for transform in TRANSFORMS] == [
        "RandomResizedCrop(size=(224, 224), scale=(0.5, 1.0), ratio=(0.75,"
        " 1.3333333333333333), interpolation='bicubic', key='image')",
        "CenterCrop(size=(3, 4))",
        "Resize(size=8, interpolation='bilinear', max_size=9, key='i')",
        "RandomHorizontalFlip(p=0.25)",
    ]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_pickle_and_compare_by_their_arguments(transform):
    copy = pickle.loads(pickle.dumps(transform))
    assert copy == transform
    assert hash(copy) == hash(transform)
    assert [copy == other for other in TRANSFORMS].count(True) == 1


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: images.Resize(0), ValueError, "size must be at least 1, got 0"),
        (lambda: images.Resize((1, 2, 3)), ValueError, "a height and a width, or one"),
        (lambda: images.CenterCrop(2.5), TypeError, "size must be an int, got float"),
        (lambda: images.Resize(None), ValueError, "max_size must be at least 1.*None"),
        (lambda: images.Resize(5, max_size=5), ValueError, "more than size, 5"),
        (lambda: images.Resize((5, 5), max_size=9), ValueError, "has both sides"),
        (lambda: images.Resize(5, "cubic"), ValueError, "must be one of nearest, box"),
        (lambda: images.Resize(5, antialias=False), ValueError, "Leave it out"),
        (lambda: images.RandomResizedCrop(5, 0.5), TypeError, "scale must be"),
        (lambda: images.RandomResizedCrop(5, (1, 0)), ValueError, "scale must be"),
        (lambda: images.RandomResizedCrop(5, ratio=(0, 1)), ValueError, "above 0"),
        (
            lambda: images.RandomHorizontalFlip(2),
            ValueError,
            "p must .*0 to 1, got 2",
        ),
        (lambda: images.CenterCrop(5, key=3), TypeError, "key must be a str or None"),
    ],
)
def test_arguments_out_of_range(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(
    ("element", "error", "text"),
    [
        (b"bytes", TypeError, r"CenterCrop\(size=\(2, 2\)\) needs a NumPy array, got"),
        ({"image": 0}, TypeError, "To take a field of a dict, name it by key="),
        (np.zeros((2, 2), np.uint8), TypeError, r"got \(2, 2\) and uint8"),
        (np.zeros((2, 2, 4), np.uint8), TypeError, "channels=1 or 3"),
        (np.zeros((0, 2, 3), np.uint8), TypeError, r"got \(0, 2, 3\)"),
        (np.zeros((2, 2, 3), np.float32), TypeError, "put Normalize and then ToLayout"),
    ],
)
def test_invalid_picture_is_refused(element, error, text):
    with pytest.raises(error, match=text):
        images.CenterCrop(2).map(element)


def test_key_selects_one_field():
    record = {"image": picture(5, 6), "label": 3}
    found = images.CenterCrop(2, key="image").map(record)
    assert (found["image"].shape, found["label"]) == ((2, 2, 3), 3)
    assert record["image"].shape == (5, 6, 3)
    with pytest.raises(KeyError, match="no field 'picture', only 'image', 'label'"):
        images.CenterCrop(2, key="picture").map(record)
