"""Tests which datasets are gathered natively, and that batches own their memory."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset, default_collate

from gristmill._torch.batches.native import (
    is_torch_collate,
    native_fetch,
    samples_fetch,
)
from gristmill._torch.indices.draws import IndexBatch
from gristmill.torch import DataLoader
from torch_loader.datasets_zoo import DATASETS

NATIVE = [
    "tensors", "tensor", "vector", "strided", "half", "complex", "no columns",
    "array bool", "array int8", "array uint8", "array int16", "array int32",
    "array int64", "array float16", "array float32", "array float64", "matrix",
    "subset", "subset of subset", "concat", "subset of concat", "stack",
    "stack named", "stack of subsets",
]  # fmt: skip


def refuse(batch):
    raise AssertionError(f"fetched {batch} row by row")


@pytest.mark.parametrize("name", NATIVE)
def test_native_datasets_are_not_read_by_rows(name):
    fetch = native_fetch(DATASETS[name](10), refuse)
    expected = list(torch.utils.data.DataLoader(DATASETS[name](10), 4))
    batches = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    for index, batch in zip(batches, expected, strict=True):
        blocks = (np.array(index), range(index[0], index[-1] + 1))
        for form in (index, *map(IndexBatch, blocks)):
            assert repr(fetch(form)) == repr(batch)


@pytest.mark.parametrize(
    "name",
    ["leaf", "sparse", "parameter", "subclass", "conjugate", "read only", "array >i4",
     "array O", "array S3", "concat of kinds", "subset of list", "ints", "together"],
)  # fmt: skip
def test_other_datasets_are_read_by_rows(name):
    assert native_fetch(DATASETS[name](10), refuse) is None


def test_other_collate_fn_gets_the_samples():
    dataset = TensorDataset(torch.arange(4))
    assert not is_torch_collate(list)
    assert is_torch_collate(default_collate)
    assert list(DataLoader(dataset, 4, collate_fn=len)) == [4]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", NATIVE)
def test_batches_do_not_share_memory_of_dataset(name, shuffle):
    dataset = DATASETS[name](8)
    before = repr(list(torch.utils.data.DataLoader(dataset, 8)))
    for batch in DataLoader(dataset, 4, shuffle=shuffle):
        for column in leaves(batch):
            column.zero_()
    assert repr(list(torch.utils.data.DataLoader(dataset, 8))) == before


def leaves(batch):
    if isinstance(batch, torch.Tensor):
        return [batch]
    parts = batch.values() if isinstance(batch, dict) else batch
    return [leaf for part in parts for leaf in leaves(part)]


def test_batches_are_made_on_default_device():
    with torch.device("meta"):
        assert native_fetch(np.arange(40), refuse) is None
        batch = samples_fetch(list(range(40)), refuse)(list(range(40)))
    assert batch.device.type == "meta"
    assert native_fetch(np.arange(40), refuse) is not None


def test_changed_rows_appear_in_later_batches():
    rows = torch.zeros(4)
    batches = iter(DataLoader(TensorDataset(rows), 2))
    next(batches)
    rows[2] = 5.0
    assert [batch.tolist() for batch in next(batches)] == [[5.0, 0.0]]


@pytest.mark.parametrize("indices", [[1, 2, 99], ["a", "b"], [2**70]])
def test_missing_rows_raise_only_the_torch_error(indices):
    def error(cls):
        loader = cls(TensorDataset(torch.arange(8)), sampler=indices, batch_size=3)
        # An index beyond 64 bits raises RuntimeError with torch 2.6.
        with pytest.raises((IndexError, TypeError, ValueError, RuntimeError)) as caught:
            next(iter(loader))
        return caught.value

    got, want = error(DataLoader), error(torch.utils.data.DataLoader)
    assert (type(got), str(got)) == (type(want), str(want))
    assert got.__context__ is None


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("value", [7, -(1 << 63), (1 << 63) - 1, 1 << 63, 1 << 64])
def test_batches_of_few_ints_match_torch(value, size):
    """Check one int and several, which use different functions."""

    def outcome(loader):
        try:
            (batch,) = loader
        except Exception as error:
            return type(error), str(error).splitlines()[0]
        return batch.dtype, batch.tolist(), batch.untyped_storage().resizable()

    samples = [value] * size
    expected = outcome(torch.utils.data.DataLoader(samples, size))
    assert outcome(DataLoader(samples, size)) == expected
