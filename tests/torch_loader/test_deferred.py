"""Tests that steps deferred to the batch give the same batches as torch's loader."""

import numpy as np
import pytest
import torch

import gristmill as g
from gristmill._base.deferred import Deferred
from gristmill.torch import DataLoader
from support.deferring import batch_threads, make_element, records, steps

COUNT = 30


def dataset(eager, form="dict", bad=()):
    pairs = [make_element(form, each, i) for i, each in enumerate(records(COUNT, bad))]
    decode, add = steps(eager, pairs[0][1])
    ds = g.MapDataset.source([element for element, _ in pairs]).seed(3)
    return ds.map(decode).random_map(add)


def batches(loader_class, data, **options):
    torch.manual_seed(1)
    batch_threads.clear()
    found = []
    iterator = iter(loader_class(data, 4, shuffle=True, **options))
    for _ in range(COUNT):
        try:
            found.append(repr(next(iterator)))
        except StopIteration:
            break
        except Exception as error:
            found.append((type(error), str(error).rpartition("\n\n")[0] != ""))
    return found


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("form", ["dict", "tuple", "bare"])
def test_batches_match_torch(form, workers):
    expected = batches(torch.utils.data.DataLoader, dataset(True, form))
    assert len(expected) == 8
    assert batches(DataLoader, dataset(False, form), num_workers=workers) == expected
    assert len(batch_threads) == (0 if workers else 8)


def test_batches_of_subsets_match_torch():
    def halves(eager):
        subset = torch.utils.data.Subset(dataset(eager), range(0, COUNT, 2))
        return torch.utils.data.Subset(subset, [9, 3, 5, 1, 2, 8])

    expected = batches(torch.utils.data.DataLoader, halves(True))
    assert batches(DataLoader, halves(False)) == expected
    assert len(batch_threads) == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_bad_record_fails_only_its_batch(workers):
    options = {"num_workers": workers}
    expected = batches(DataLoader, dataset(True, bad=(5, 17)), **options)
    assert len(expected) == 8
    assert sum(type(each) is tuple for each in expected) == 2
    assert batches(DataLoader, dataset(False, bad=(5, 17)), **options) == expected


def test_kept_batches_are_not_overwritten():
    loader = DataLoader(dataset(False, "bare"), 4, num_workers=1)
    kept = list(loader)
    together = torch.cat(kept)
    assert repr(kept) == repr(
        list(torch.utils.data.DataLoader(dataset(True, "bare"), 4))
    )
    assert together.shape == (COUNT, 8)


def test_user_collate_fn_gets_the_samples():
    batch_threads.clear()
    loader = DataLoader(dataset(False), 4, collate_fn=len)
    assert list(loader) == [4] * 7 + [2]
    assert not batch_threads


class Halves(Deferred):
    __slots__ = ()

    def stack(self, column, alloc, threads):
        import ml_dtypes

        out = alloc((len(column), 2), np.dtype(ml_dtypes.bfloat16))
        out[:] = 0.5
        return out


class Half(g.transforms.Map):
    def map(self, element):
        raise AssertionError("it is deferred")

    def defer(self, element):
        return Halves()


@pytest.mark.parametrize("workers", [0, 1])
def test_arrays_of_bfloat16_become_tensors(workers):
    ds = g.MapDataset.range(4).map(Half())
    (batch,) = DataLoader(ds, 4, num_workers=workers)
    assert batch.dtype == torch.bfloat16
    assert batch.tolist() == [[0.5, 0.5]] * 4
