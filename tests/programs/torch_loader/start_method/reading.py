"""Reads batches by workers of each kind."""

import numpy as np

import gristmill
import gristmill.torch


def torchs(context=None):
    loader = gristmill.torch.DataLoader(
        range(10), num_workers=2, multiprocessing_context=context
    )
    return [batch.item() for batch in loader]


def grains():
    sampler = gristmill.IndexSampler(10, num_epochs=1)
    return sorted(
        int(element)
        for element in gristmill.DataLoader(
            data_source=np.arange(10), sampler=sampler, worker_count=2
        )
    )


def all_come():
    for read in (torchs, lambda: torchs("launcher"), grains):
        assert read() == list(range(10))
