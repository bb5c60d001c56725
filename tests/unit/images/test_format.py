"""Tests of Normalize, which computes like torchvision in three dtypes, and ToLayout."""

import builtins
import pickle

import ml_dtypes
import numpy as np
import pytest

from gristmill import images

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Every byte, in every channel.
BYTES = np.tile(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), (1, 1, 3))
EXACT = (BYTES / 255 - MEAN) / STD


class TestNormalize:
    def test_values_are_close_to_exact(self):
        found = images.Normalize(MEAN, STD).map(BYTES)
        assert (found.dtype, found.shape) == (np.float32, (16, 16, 3))
        np.testing.assert_allclose(found, EXACT, rtol=0, atol=1e-6)

    def test_values_match_torchvision(self):
        pixels = np.array([[[0, 127, 255]]], np.uint8)
        found = images.Normalize(MEAN, STD).map(pixels)
        expected = [-2.1179039478302, 0.18767519295216, 2.640000104904]
        np.testing.assert_allclose(found[0, 0], expected, rtol=1e-6)

    @pytest.mark.parametrize(
        ("dtype", "own"),
        [
            ("float16", np.float16),
            (np.float16, np.float16),
            ("bfloat16", ml_dtypes.bfloat16),
            (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        ],
    )
    def test_shorter_floats_are_rounded_to_nearest_even(self, dtype, own):
        single = images.Normalize(MEAN, STD).map(BYTES)
        found = images.Normalize(MEAN, STD, dtype=dtype).map(BYTES)
        assert found.dtype == own
        np.testing.assert_array_equal(
            found.view(np.uint16), single.astype(own).view(np.uint16)
        )

    def test_single_value_applies_to_all_channels(self):
        found = images.Normalize([0.5], [0.25]).map(BYTES)
        np.testing.assert_allclose(found, (BYTES / 255 - 0.5) / 0.25, atol=1e-6)
        gray = images.Normalize([0.5], [0.25]).map(BYTES[..., :1])
        np.testing.assert_array_equal(gray, found[..., :1])

    def test_wrong_channel_count_is_refused(self):
        with pytest.raises(ValueError, match="1 channels, got 3"):
            images.Normalize(MEAN, STD).map(BYTES[..., :1])

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ((0.5, 0.5), TypeError, "mean must be a number for each channel"),
            (((0.5,), (1, 1)), ValueError, "mean and std must .*got 1 and 2"),
            (((), ()), ValueError, "one value for each channel, got 0 and 0"),
            (((0.5,), (0,)), ValueError, "must not contain 0"),
            (((float("nan"),), (1,)), ValueError, "mean must be a finite number"),
        ],
    )
    def test_arguments_out_of_range(self, arguments, error, text):
        with pytest.raises(error, match=text):
            images.Normalize(*arguments)
        with pytest.raises(ValueError, match="must be one of float32, float16, bfloat"):
            images.Normalize(MEAN, STD, dtype=np.float64)

    def test_bfloat16_without_ml_dtypes_names_package(self, monkeypatch):
        real = builtins.__import__

        def without(name, *rest):
            if name == "ml_dtypes":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return real(name, *rest)

        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(ImportError, match="pip install ml-dtypes"):
            images.Normalize(MEAN, STD, dtype="bfloat16")


class TestToLayout:
    @pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float16])
    def test_chw_moves_channels_of_any_dtype(self, dtype):
        pixels = np.arange(60).reshape(4, 5, 3).astype(dtype)
        found = images.ToLayout("CHW").map(pixels)
        assert (found.shape, found.dtype) == ((3, 4, 5), dtype)
        np.testing.assert_array_equal(found, pixels.transpose(2, 0, 1))
        assert found.flags.c_contiguous

    def test_hwc_returns_the_same_array(self):
        assert images.ToLayout("HWC").map(BYTES) is BYTES

    def test_bad_layout_and_input_are_refused(self):
        with pytest.raises(ValueError, match=r"layout must be .*got 'NCHW'"):
            images.ToLayout("NCHW")
        with pytest.raises(TypeError, match="needs an array of three dimensions"):
            images.ToLayout("CHW").map(BYTES[0])


def test_print_pickle_and_compare():
    normalize = images.Normalize((0.5,), (0.25,), dtype="bfloat16", key="x")
    text = "Normalize(mean=(0.5,), std=(0.25,), dtype='bfloat16', key='x')"
    assert repr(normalize) == text
    assert pickle.loads(pickle.dumps(normalize)) == normalize
    assert normalize != images.Normalize((0.5,), (0.25,), key="x")
    assert repr(images.ToLayout("CHW")) == "ToLayout(layout='CHW')"
