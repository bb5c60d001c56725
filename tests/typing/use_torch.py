"""gristmill.torch, typed like torch's own loader, and tensors of Grain's loaders."""

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data

import gristmill as grain
from gristmill.torch import (
    AsIterable,
    DataLoader,
    DeviceIterator,
    StatefulDataLoader,
    TensorIterator,
    as_tensors,
    to_device,
)


class Pairs(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(2), index


loader = DataLoader(Pairs(), batch_size=2, shuffle=True, collate_fn=None)
assert_type(loader, DataLoader[tuple[torch.Tensor, int]])
assert_type(loader.dataset, torch.utils.data.Dataset[tuple[torch.Tensor, int]])
assert_type(len(loader), int)
for batch in loader:
    assert_type(batch, Any)
as_torchs: torch.utils.data.DataLoader[tuple[torch.Tensor, int]] = loader

tensors = torch.utils.data.TensorDataset(torch.zeros(4))
of_tensors: DataLoader[tuple[torch.Tensor, ...]] = DataLoader(tensors)
assert_type(DataLoader(AsIterable([np.zeros(2)]), None), DataLoader[Any])
# Any object with a length and indices is a map-style dataset.
assert_type(DataLoader([1, 2, 3], batch_size=2), DataLoader[int])
assert_type(
    DataLoader(grain.RangeDataSource(0, 4, 1), overlap_epochs=False), DataLoader[int]
)

stateful = StatefulDataLoader(Pairs(), batch_size=2, snapshot_every_n_steps=1)
assert_type(stateful, StatefulDataLoader[tuple[torch.Tensor, int]])
state = stateful.state_dict()
assert_type(state, dict[str, Any])
stateful.load_state_dict(state)
for batch in stateful:
    assert_type(batch, Any)
next(iter(stateful))


def row(x: int) -> npt.NDArray[np.float32]:
    return np.full(2, x, np.float32)


def name(x: int) -> npt.NDArray[np.str_]:
    return np.array([str(x)], np.str_)


rows = grain.MapDataset.range(4).map(row).batch(2)
columns = grain.MapDataset.range(4).map(lambda x: {"x": row(x)}).batch(2)
names = grain.MapDataset.range(4).map(name)
anything = grain.load(np.zeros((4, 2)), num_epochs=1)

assert_type(as_tensors(rows), TensorIterator[torch.Tensor])
assert_type(as_tensors(columns), TensorIterator[dict[str, torch.Tensor]])
assert_type(as_tensors(names), TensorIterator[Any])
assert_type(as_tensors(anything), TensorIterator[Any])
for tensor in as_tensors(rows):
    assert_type(tensor, torch.Tensor)

assert_type(to_device(rows, "cpu"), DeviceIterator[torch.Tensor])
assert_type(to_device(columns, "cpu"), DeviceIterator[dict[str, torch.Tensor]])
assert_type(to_device(as_tensors(rows), "cpu"), DeviceIterator[torch.Tensor])
assert_type(
    to_device(as_tensors(columns), torch.device("cpu"), depth=2),
    DeviceIterator[dict[str, torch.Tensor]],
)
assert_type(to_device(loader, "cpu"), DeviceIterator[Any])
