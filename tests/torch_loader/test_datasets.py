"""Tests of Gristmill's sources, datasets and loaders in torch loops."""

import numpy as np
import pytest
import torch
import torch.utils.data

import gristmill as g
from gristmill.torch import AsIterable, DataLoader


def gristmill_loader():
    return g.DataLoader(
        data_source=np.arange(10.0),
        sampler=g.SequentialSampler(10),
        operations=[g.Batch(4)],
    )


@pytest.mark.parametrize(
    "make",
    [gristmill_loader, lambda: g.MapDataset.source(np.arange(10.0)).batch(4)
     .to_iter_dataset(),
     lambda: g.MapDataset.range(10).block_map(list, 3).map(float).batch(4)
     .to_iter_dataset()],
)  # fmt: skip
@pytest.mark.parametrize("kind", [DataLoader, torch.utils.data.DataLoader])
def test_batches_are_tensors_in_each_epoch(make, kind):
    loader = kind(AsIterable(make()), batch_size=None)
    for _ in range(2):
        batches = list(loader)
        assert all(type(batch) is torch.Tensor for batch in batches)
        assert torch.cat(batches).tolist() == list(range(10))
        assert [len(batch) for batch in batches] == [4, 4, 2]


@pytest.mark.multiprocess
def test_loader_inside_loader_with_workers_is_refused():
    loader = DataLoader(AsIterable(gristmill_loader()), None, num_workers=1)
    with pytest.raises(RuntimeError, match="needs a loader with num_workers=0"):
        next(iter(loader))


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_map_dataset_works_in_torch_loader(workers):
    numbers = g.MapDataset.range(10).block_map(lambda some: [x + 1 for x in some])
    dataset = numbers.map(lambda x: {"x": np.float32(x), "n": x})
    ours = DataLoader(dataset, 4, num_workers=workers)
    theirs = torch.utils.data.DataLoader(dataset, 4)
    assert repr(list(ours)) == repr(list(theirs))
