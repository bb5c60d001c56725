"""Streams its writer's chunks with torch's loader, shuffled and mixed, and resumes."""

import itertools

import litdata
import numpy as np
import torch
from torch.utils.data import DataLoader


def write_samples(name, count):
    """Write a dataset in chunks of ten samples, with litdata's writer."""
    litdata.optimize(
        fn=sample,
        inputs=[(name, number) for number in range(count)],
        output_dir=name,
        num_workers=1,
        chunk_size=10,
        start_method="fork",
    )
    return name


def sample(job):
    name, number = job
    draws = np.random.default_rng(number)
    return {
        "name": f"{name} {number}",
        "index": number,
        "tokens": torch.from_numpy(draws.integers(0, 1000, 7)),
        "picture": draws.random((3, 4), dtype=np.float32),
    }


def streaming(folder, workers):
    """Yield two epochs, and the rest of a third after a stop."""
    for epoch in range(2):
        dataset = litdata.StreamingDataset(folder, shuffle=True, seed=4)
        dataset.set_epoch(epoch)
        for batch in DataLoader(dataset, batch_size=4, num_workers=workers):
            yield f"epoch {epoch}", batch
    batches = iter(DataLoader(dataset, batch_size=4, num_workers=workers))
    for batch in itertools.islice(batches, 6):
        yield "before the stop", batch
    state = dataset.state_dict(
        num_samples_yielded=24, num_workers=workers, batch_size=4
    )
    del batches
    dataset = litdata.StreamingDataset(folder, shuffle=True, seed=4)
    dataset.load_state_dict(state)
    for batch in DataLoader(dataset, batch_size=4, num_workers=workers):
        yield "after the stop", batch


def combined(folders, workers):
    parts = [litdata.StreamingDataset(folder, seed=4) for folder in folders]
    dataset = litdata.CombinedStreamingDataset(
        parts, weights=[0.7, 0.3], seed=6, iterate_over_all=False
    )
    loader = DataLoader(dataset, batch_size=3, num_workers=workers)
    yield from (("batch", batch) for batch in loader)


def parallel(folders, workers):
    parts = [litdata.StreamingDataset(folder, shuffle=True) for folder in folders]
    dataset = litdata.ParallelStreamingDataset(parts, transform=stack, seed=3)
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(dataset, batch_size=3, **options)
    for epoch in range(2):
        for batch in loader:
            yield f"epoch {epoch}", batch


def stack(samples, rngs):
    """Join samples of two datasets, and add a number from litdata's generator."""
    tokens = torch.stack([sample["tokens"] for sample in samples])
    return tokens, rngs["random"].random()


def by_number(folder, workers):
    torch.manual_seed(0)
    samples = torch.utils.data.Subset(litdata.StreamingDataset(folder), range(5, 40, 2))
    loader = DataLoader(samples, batch_size=5, shuffle=True, num_workers=workers)
    yield from (("batch", batch) for batch in loader)


def main():
    folders = [write_samples("letters", 53), write_samples("numbers", 31)]
    for workers in (0, 2):
        runs = {
            "streaming": streaming(folders[0], workers),
            "combined": combined(folders, workers),
            "parallel": parallel(folders, workers),
            "by number": by_number(folders[0], workers),
        }
        for name, values in runs.items():
            for part, value in values:
                yield f"{workers} workers, {name}, {part}", value
