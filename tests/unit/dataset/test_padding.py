"""batch_and_pad makes the last batch as large as the others."""

import functools

import numpy as np
import pytest

import gristmill
from gristmill.experimental import batch_and_pad
from support.twins import assert_twins, grain, same

LIBRARIES = pytest.mark.parametrize("library", [lambda: gristmill, grain])


def rows(n):
    return [
        {"x": np.float32(i), "y": (i, np.full(2, i, np.int8)), "z": np.bool_(i % 2)}
        for i in range(n)
    ]


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("value", [0, 7, 1.5])
def test_padded_batches_match_grain(size, value):
    ours = batch_and_pad(rows(2), batch_size=size, pad_value=value)
    theirs = grain().experimental.batch_and_pad(
        rows(2), batch_size=size, pad_value=value
    )
    assert same(ours, theirs)


def test_datasets_with_padding_match_grain():
    def make(lib):
        function = functools.partial(lib.experimental.batch_and_pad, batch_size=3)
        ds = lib.MapDataset.range(1, 9).to_iter_dataset()
        return ds.batch(3, batch_fn=function)

    assert [batch.tolist() for batch in assert_twins(make)] == [
        [1, 2, 3],
        [4, 5, 6],
        [7, 8, 0],
    ]


@LIBRARIES
def test_batch_rejects_wrong_element_count(library):
    pad = library().experimental.batch_and_pad
    with pytest.raises(ValueError, match=r"Cannot batch 0 values."):
        pad([], batch_size=2)
    with pytest.raises(ValueError, match=r"Cannot batch 3 values to 2."):
        pad([1, 2, 3], batch_size=2)


@LIBRARIES
def test_elements_must_have_one_structure(library):
    with pytest.raises(ValueError, match="the same structure but got"):
        library().experimental.batch_and_pad([np.zeros(2), np.zeros(3)], batch_size=4)
