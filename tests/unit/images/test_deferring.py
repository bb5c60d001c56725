"""Tests that deferred transforms give the same pixels as transforms run one by one."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from gristmill import images
from gristmill.errors import CorruptRecord, ShapeMismatch
from gristmill.transforms import RandomMap
from support.picture_files import file_of

FILTERS = "nearest box bilinear hamming bicubic lanczos".split()


def one_by_one(transforms, element, seed):
    rng = np.random.default_rng(seed)
    for transform in transforms:
        if isinstance(transform, RandomMap):
            element = transform.random_map(element, rng)
        else:
            element = transform.map(element)
    return element


def deferred(transforms, element, seed):
    rng = np.random.default_rng(seed)
    for transform in transforms:
        draws = (rng,) if isinstance(transform, RandomMap) else ()
        element = transform.defer(element, *draws)
    return element


def batch_of(tasks, threads=1):
    return tasks[0].stack(tasks, None, threads)


sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))
geometry = st.one_of(
    st.builds(images.RandomResizedCrop, sizes, interpolation=st.sampled_from(FILTERS)),
    st.builds(images.CenterCrop, sizes),
    st.builds(images.Resize, sizes, st.sampled_from(FILTERS)),
    st.just(images.RandomHorizontalFlip()),
)
formats = st.sampled_from(
    [
        [],
        [images.ToLayout("CHW")],
        [images.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))],
        [images.Normalize((0.5,), (0.5,), dtype="float16"), images.ToLayout("CHW")],
        [images.Normalize((0.5,), (0.5,), dtype="bfloat16"), images.ToLayout("HWC")],
    ]
)
files = st.builds(
    file_of,
    st.integers(1, 70),
    st.integers(1, 70),
    mode=st.sampled_from(["L", "RGB", "CMYK"]),
    orientation=st.integers(1, 8),
    progressive=st.booleans(),
    subsampling=st.sampled_from([0, 1, 2]),
    restart_marker_blocks=st.sampled_from([0, 1, 3]),
    quality=st.sampled_from([30, 90]),
)


@hypothesis.given(
    files, st.lists(geometry, max_size=4), formats, st.booleans(), st.integers(0, 99)
)
@hypothesis.settings(max_examples=200, deadline=None)
def test_deferred_steps_match_single_steps(file, steps, format, orient, seed):
    transforms = [images.DecodeImage(3, orient=orient), *steps, *format]
    expected = one_by_one(transforms, file, seed)
    task = deferred(transforms, file, seed)
    assert task.shape == expected.shape
    found = batch_of([task])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(
        found[0].view(f"u{found.itemsize}"), expected.view(f"u{found.itemsize}")
    )


class TestRun:
    """Tests of the usual transforms, which run as one task per file."""

    STEPS = (
        images.DecodeImage(3, key="image"),
        images.RandomResizedCrop(32, key="image"),
        images.RandomHorizontalFlip(key="image"),
        images.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4), key="image"),
        images.ToLayout("CHW", key="image"),
    )

    def test_file_is_not_decoded_before_the_batch(self):
        file = file_of(90, 100)
        found = deferred(self.STEPS, {"image": file, "label": 7}, 0)
        assert found["label"] == 7
        assert found["image"].data == file
        assert found["image"].shape == (3, 32, 32)

    @pytest.mark.parametrize("threads", [1, 3])
    def test_batch_of_files_and_pixels_matches_single_steps(self, threads):
        files = [file_of(90, 50 + 7 * i) for i in range(9)]
        files += [file_of(60, 60, format="PNG"), file_of(60, 60, "CMYK")]
        records = [{"image": file} for file in files]
        tasks = [deferred(self.STEPS, r, i)["image"] for i, r in enumerate(records)]
        found = batch_of(tasks, threads)
        assert (found.shape, found.dtype) == ((11, 3, 32, 32), np.float32)
        for i, record in enumerate(records):
            expected = one_by_one(self.STEPS, record, i)["image"]
            np.testing.assert_array_equal(found[i], expected)

    def test_png_task_keeps_only_cropped_pixels(self):
        record = {"image": file_of(400, 300, format="PNG")}
        task = deferred(self.STEPS, record, 0)["image"]
        assert task.data.nbytes == 32 * 32 * 3

    def test_stack_writes_to_allocated_memory(self):
        asked = []

        def alloc(shape, dtype):
            asked.append((shape, dtype, np.empty(shape, dtype)))
            return asked[-1][2]

        tasks = [deferred(self.STEPS, {"image": file_of(9, 9)}, 0)["image"]] * 2
        found = tasks[0].stack(tasks, alloc, 1)
        assert asked[0][:2] == ((2, 3, 32, 32), np.float32)
        assert found is asked[0][2]

    def test_undecodable_picture_fails_its_batch(self):
        files = [file_of(90, 100), file_of(90, 100)[:-300]]
        tasks = [deferred(self.STEPS, {"image": file}, 0)["image"] for file in files]
        with pytest.raises(CorruptRecord):
            batch_of(tasks)


@pytest.mark.parametrize("size", [(40, 60), (80, 120)])
def test_draft_with_crop_matches_single_steps(size):
    """Check a draft that is smaller than the file, and one of the file's size."""
    decode = images.DecodeImage(size=size, draft=True)
    transforms = [decode, images.RandomResizedCrop(9)]
    file = file_of(80, 120)
    expected = one_by_one(transforms, file, 0)
    found = deferred(transforms, file, 0)
    np.testing.assert_array_equal(batch_of([found])[0], expected)


def test_unequal_shapes_do_not_stack():
    decode = images.DecodeImage()
    tasks = [decode.defer(file_of(8, 9)), decode.defer(file_of(9, 8))]
    with pytest.raises(ShapeMismatch, match=r"shapes \(8, 9, 3\) and \(9, 8, 3\)"):
        batch_of(tasks)
    with pytest.raises(ShapeMismatch, match="only images, got ndarray"):
        batch_of([tasks[0], np.zeros((8, 9, 3), np.uint8)])


def test_unsupported_formats_are_decoded_at_once():
    found = images.DecodeImage(dtype=np.float32).defer(file_of(8, 9))
    assert (found.shape, found.dtype) == ((8, 9, 3), np.float32)
    with_alpha = images.DecodeImage(4).defer(file_of(8, 9))
    assert (with_alpha.shape, with_alpha.dtype) == ((8, 9, 4), np.uint8)


@pytest.mark.parametrize(
    "steps",
    [
        [images.Normalize((0.5,), (0.5,)), images.CenterCrop(3)],
        [images.ToLayout("CHW"), images.RandomHorizontalFlip()],
        [images.Normalize((0.5,), (0.5,)), images.Normalize((0.5,), (0.5,))],
    ],
)
def test_normalize_or_layout_before_geometry_is_refused(steps):
    transforms = [images.DecodeImage(), *steps]
    for run in (one_by_one, deferred):
        with pytest.raises(TypeError, match="put Normalize and then ToLayout last"):
            run(transforms, file_of(8, 9), 0)
