"""A small task for trainers."""

import random

import numpy as np
import torch
import torch.utils.data

SAMPLES = 10


class Noisy(torch.utils.data.Dataset):
    """Points of a line with random noise, so that the reader must seed the generators.

    Sample i is ``(x, y)`` of shapes (2,) and (1,); the first of x is i.
    """

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        noise = random.random() + np.random.random() + torch.rand(()).item()  # noqa: NPY002
        x = torch.tensor([float(index), noise])
        return x, x.sum(0, keepdim=True)


class Plain(torch.utils.data.Dataset):
    """Sample i is a tensor of the number i."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return torch.tensor(float(index))


def line():
    """Return a model of two weights and a bias, with the same values each time."""
    torch.manual_seed(7)
    return torch.nn.Linear(2, 1)
