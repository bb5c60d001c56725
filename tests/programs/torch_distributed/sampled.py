"""Compares epochs of the named loader and of torch's, with a DistributedSampler."""

import importlib

import torch.utils.data
from torch.utils.data.distributed import DistributedSampler

from programs.torch_distributed.group import gathered, join, leave

module, name = join()
Loader = getattr(importlib.import_module(module), name)
Expected = torch.utils.data.DataLoader
data = torch.utils.data.TensorDataset(torch.arange(43), torch.arange(43.0))


def epochs(kind, shuffle, drop_last, workers):
    sampler = DistributedSampler(data, shuffle=shuffle, drop_last=drop_last, seed=7)
    made = kind(
        data, batch_size=5, sampler=sampler, drop_last=drop_last, num_workers=workers
    )
    assert made.sampler is sampler
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = [(a.tolist(), b.tolist()) for a, b in made]
        assert len(batches) == len(made) == (4 if drop_last else 5)
        yield batches


for shuffle in (False, True):
    for drop_last in (False, True):
        expected = list(epochs(Expected, shuffle, drop_last, 0))
        for workers in (0, 2):
            assert list(epochs(Loader, shuffle, drop_last, workers)) == expected
        assert (expected[0] == expected[1]) is not shuffle
        for parts in zip(*gathered(expected), strict=True):
            seen = [i for part in parts for batch, _ in part for i in batch]
            if drop_last:
                assert len(seen) == len(set(seen)) == 40
            else:
                assert len(seen) == 44 and set(seen) == set(range(43))

leave()
