"""Streams its writer's compressed shards, mixed and shuffled, and resumes.

Uses `StreamingDataset` with torch's loader and with `StreamingDataLoader`, a subclass
of torch's loader that counts samples for its state.
"""

import itertools
import pathlib

import numpy as np
import torch
from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

COLUMNS = {"text": "str", "number": "int", "tokens": "ndarray:int32"}


def write_shards(name, count, compression="zstd"):
    draws = np.random.default_rng(count)
    options = {"compression": compression, "size_limit": 700}
    with MDSWriter(out=name, columns=COLUMNS, **options) as out:
        for number in range(count):
            tokens = draws.integers(0, 1000, 6).astype(np.int32)
            out.write({"text": f"{name} {number}", "number": number, "tokens": tokens})
    return name


def dataset(folders, run, **options):
    streams = [
        Stream(remote=folder, local=f"cache-{run}/{folder}", proportion=share)
        for folder, share in folders.items()
    ]
    return StreamingDataset(
        streams=streams,
        batch_size=4,
        shuffle=True,
        shuffle_algo="py1e",
        shuffle_seed=3,
        num_canonical_nodes=1,
        **options,
    )


class Scaled(StreamingDataset):
    """Scales tokens by random numbers of the worker, as a user's subclass does."""

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        noise = torch.rand(len(sample["tokens"]))
        return torch.from_numpy(sample["tokens"]) * noise, sample["number"]


def streamed(folders, run, workers, persistent):
    """Yield two epochs, and the rest of a third after a stop."""

    def loader():
        clean_stale_shared_memory()
        return StreamingDataLoader(
            dataset(folders, f"{run}-{next(numbers)}"),
            batch_size=4,
            num_workers=workers,
            persistent_workers=persistent,
            drop_last=True,
        )

    numbers = itertools.count()
    first = loader()
    for epoch in range(2):
        for batch in first:
            yield f"epoch {epoch}", batch
    batches = iter(first)
    for batch in itertools.islice(batches, 4):
        yield "before the stop", batch
    state = first.state_dict()
    yield "state", state
    del batches, first
    second = loader()
    second.load_state_dict(state)
    for batch in second:
        yield "after the stop", batch


def by_number(folder, workers):
    """Yield samples by number, from a sampler of torch, and then in order."""
    clean_stale_shared_memory()
    torch.manual_seed(6)
    samples = Scaled(local=folder, batch_size=5)
    sampler = torch.utils.data.RandomSampler(samples, num_samples=30)
    numbered = torch.utils.data.Subset(samples, range(len(samples)))
    loader = torch.utils.data.DataLoader(
        numbered, batch_size=5, sampler=sampler, num_workers=workers
    )
    yield from (("by number", batch) for batch in loader)
    loader = torch.utils.data.DataLoader(samples, batch_size=5, num_workers=workers)
    yield from (("in order", batch) for batch in loader)


def main():
    folders = {write_shards("letters", 60): 0.7, write_shards("numbers", 35): 0.3}
    write_shards("plain", 22, compression=None)
    for workers, persistent in ((0, False), (2, False), (2, True)):
        run = f"{workers} workers{', persistent' if persistent else ''}"
        pathlib.Path(f"cache-{run}").mkdir()
        for part, value in streamed(folders, run, workers, persistent):
            yield f"{run}, streamed, {part}", value
        if not persistent:
            for part, value in by_number("plain", workers):
                yield f"{run}, {part}", value
