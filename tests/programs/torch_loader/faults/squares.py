"""The dataset of most programs, and its loader."""

import torch

from gristmill.torch import DataLoader


class Squares:
    def __init__(self, length=64, shape=(4,)):
        self.length, self.shape = length, shape

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return torch.full(self.shape, i * i)


def values(batches):
    return [int(batch.reshape(-1)[0]) for batch in batches]


def make(dataset=None, **options):
    options.setdefault("num_workers", 2)
    return DataLoader(dataset or Squares(), **options)


SQUARES = [i * i for i in range(64)]
