"""Leaves an iterator with workers open at exit, with torch imported."""

import torch

import gristmill

print(torch.__name__)
options = gristmill.MultiprocessingOptions(num_workers=1)
numbers = gristmill.MapDataset.range(1000).batch(4).to_iter_dataset()
iterator = iter(numbers.mp_prefetch(options))
print(next(iterator).tolist())
