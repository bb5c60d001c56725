"""A limit ends a dataset early."""

import pytest

import gristmill
from gristmill.experimental import LimitIterDataset, get_next_index, set_next_index
from support.twins import assert_twins, grain


@pytest.mark.parametrize("count", [1, 4, 9])
def test_limits_match_grain(count):
    elements = assert_twins(
        lambda lib: lib.experimental.LimitIterDataset(
            lib.MapDataset.range(7).to_iter_dataset(), count
        )
    )
    assert elements == list(range(min(count, 7)))


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_limit_must_be_positive(library):
    ds = library().MapDataset.range(3).to_iter_dataset()
    with pytest.raises(ValueError, match=r"Count must be .* Got 0"):
        library().experimental.LimitIterDataset(ds, 0)


def test_limit_has_next_index():
    iterator = iter(
        LimitIterDataset(gristmill.MapDataset.range(9).to_iter_dataset(), 5)
    )
    set_next_index(iterator, 3)
    assert (next(iterator), get_next_index(iterator), list(iterator)) == (3, 4, [4])


def test_names():
    ds = LimitIterDataset(gristmill.MapDataset.range(9).to_iter_dataset(), 5)
    assert f"{ds}" == "LimitIterDataset(count=5)"
