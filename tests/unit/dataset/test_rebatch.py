"""Rebatching changes the batch size and keeps the rows."""

import numpy as np
import pytest

import gristmill
from gristmill.errors import ShapeMismatch
from gristmill.experimental import RebatchIterDataset
from support.twins import assert_twins, grain, run


def batches(lib, rows, size):
    ds = lib.MapDataset.range(rows).map(lambda x: {"x": x, "y": np.full(2, x, np.int8)})
    return ds.batch(size).to_iter_dataset()


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize(("size", "new"), [(3, 2), (2, 5), (4, 4), (3, 6), (7, 3)])
def test_rebatches_match_grain(size, new, drop):
    def make(lib):
        return lib.experimental.RebatchIterDataset(batches(lib, 12, size), new, drop)

    elements = assert_twins(make)
    assert sum(len(batch["x"]) for batch in elements) == (
        12 // new * new if drop else 12
    )


def test_no_empty_batch_follows_the_last():
    """Grain returns an empty batch if it is restored at the end."""
    ds = RebatchIterDataset(batches(gristmill, 4, 2), 2)
    elements, states, _ = run(iter(ds))
    for place, state in enumerate(states):
        resumed = iter(ds)
        resumed.set_state(state)
        assert len(list(resumed)) == max(len(elements) - place, 0)


def test_batch_within_a_parent_batch_is_a_view():
    whole = np.arange(6)
    ds = RebatchIterDataset(gristmill.MapDataset.source([whole]).to_iter_dataset(), 3)
    assert all(np.shares_memory(batch, whole) for batch in ds)


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_batches_without_rows_are_rejected(library):
    empty = library().MapDataset.source([np.empty((0, 2))]).to_iter_dataset()
    with pytest.raises(ValueError, match="starting batch size of 0 is not supported"):
        list(library().experimental.RebatchIterDataset(empty, 2))


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_batch_size_must_be_positive(library):
    with pytest.raises(ValueError, match="batch_size must be positive"):
        library().experimental.RebatchIterDataset(batches(library(), 4, 2), 0)


def test_leaves_must_be_equally_long():
    odd = [
        {"x": np.arange(3), "y": np.arange(2)},
        {"x": np.arange(3), "y": np.arange(3)},
    ]
    iterator = iter(
        RebatchIterDataset(gristmill.MapDataset.source(odd).to_iter_dataset(), 3)
    )
    with pytest.raises(ValueError, match=r"number of rows, got \[2, 3\]"):
        next(iterator)
    assert next(iterator)["y"].tolist() == [0, 1, 2]


def test_batches_must_have_one_structure():
    odd = [{"x": np.arange(2)}, {"y": np.arange(2)}, {"x": np.arange(2)}]
    iterator = iter(
        RebatchIterDataset(gristmill.MapDataset.source(odd).to_iter_dataset(), 2)
    )
    assert next(iterator)["x"].tolist() == [0, 1]
    with pytest.raises(ShapeMismatch, match=r"\{'x': .* got \{'y': 'leaf'\}"):
        next(iterator)
    assert next(iterator)["x"].tolist() == [0, 1]


def test_names():
    ds = RebatchIterDataset(batches(gristmill, 4, 2), 3)
    assert f"{ds}" == "RebatchIterDataset(batch_size=3, drop_remainder=False)"
