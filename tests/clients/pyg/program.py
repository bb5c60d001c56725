"""Loads graphs with PyG's loaders, and trains a graph network on them."""

import torch
import torch_geometric
from torch_geometric.datasets import FakeDataset
from torch_geometric.loader import (
    DataListLoader,
    DataLoader,
    DenseDataLoader,
    DynamicBatchSampler,
    ImbalancedSampler,
    PrefetchLoader,
    RandomNodeLoader,
)
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.transforms import Constant, ToDense


class Network(torch.nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first = GCNConv(features, 8)
        self.last = torch.nn.Linear(8, classes)

    def forward(self, batch):
        x = self.first(batch.x, batch.edge_index).relu()
        return self.last(global_mean_pool(x, batch.batch))


def graphs(**options):
    torch_geometric.seed_everything(2)
    return FakeDataset(
        num_graphs=30, avg_num_nodes=12, num_channels=4, num_classes=3, **options
    )


def fields(batch):
    return {key: batch[key] for key in sorted(batch.keys())}


def trained(workers):
    dataset = graphs(transform=Noise())
    torch_geometric.seed_everything(3)
    model = Network(dataset.num_features, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"persistent_workers": True} if workers else {}
    loader = DataLoader(dataset, 4, shuffle=True, num_workers=workers, **options)
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
            loss.backward()
            optimizer.step()
            yield type(batch).__name__, (fields(batch), loss.item())
    yield "weights", dict(model.state_dict())


class Noise:
    """Adds random numbers in the process that reads the graph."""

    def __call__(self, data):
        data.x = data.x + torch.rand(data.x.shape)
        return data


def loaded(workers):
    dataset = graphs()
    options = {"num_workers": workers}
    sampler = DynamicBatchSampler(dataset, max_num=60, shuffle=True)
    yield "dynamic", DataLoader(dataset, batch_sampler=sampler, **options)
    sampler = ImbalancedSampler(dataset)
    yield "imbalanced", DataLoader(dataset, 4, sampler=sampler, **options)
    prefetched = DataLoader(dataset, 4, follow_batch=["x"], **options)
    yield "prefetched", PrefetchLoader(prefetched, torch.device("cpu"))
    yield "list", DataListLoader(dataset, 4, shuffle=True, **options)
    dense = graphs(transform=ToDense(40))
    yield "dense", DenseDataLoader(dense, 4, shuffle=True, **options)
    (data,) = FakeDataset(1, avg_num_nodes=200, transform=Constant())
    yield "nodes", RandomNodeLoader(data, num_parts=5, shuffle=True, **options)


def main():
    for workers in (0, 2):
        for name, value in trained(workers):
            yield f"{workers} workers: {name}", value
        for name, loader in loaded(workers):
            for batch in loader:
                parts = batch if isinstance(batch, list) else [batch]
                yield f"{workers} workers: {name}", [fields(part) for part in parts]
