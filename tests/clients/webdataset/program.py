"""Streams tar files with `WebLoader` and `DataPipeline`, batched in workers, mixed."""

import pathlib

import numpy as np
import torch
import webdataset as wds


def write_shards(folder):
    """Write 60 samples in tar files of 15, with webdataset's writer."""
    pathlib.Path(folder).mkdir()
    draws = np.random.default_rng(1)
    with wds.ShardWriter(f"{folder}/%06d.tar", maxcount=15, verbose=0) as writer:
        for number in range(60):
            sample = {
                "__key__": f"sample{number:04d}",
                "picture.npy": draws.random((2, 3)),
                "class.cls": number % 7,
                "words.json": {"number": number, "text": "word " * (number % 4)},
            }
            writer.write(sample)
    return sorted(str(path) for path in pathlib.Path(folder).glob("*.tar"))


def samples(urls, seed):
    dataset = wds.WebDataset(urls, shardshuffle=4, detshuffle=True, seed=seed)
    return (
        dataset.shuffle(20, seed=seed)
        .decode()
        .to_tuple("__key__", "picture.npy", "class.cls")
    )


def loaded(urls, workers):
    """Yield epochs of batches that workers made and the main process mixed."""
    dataset = samples(urls, 3).batched(4)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=workers)
    loader = loader.unbatched().shuffle(30, seed=1).batched(6)
    for epoch in range(2):
        for batch in loader:
            yield f"loaded, epoch {epoch}", batch


def of_pipeline(urls, workers):
    """Yield a fixed number of batches from an endless pipeline."""
    pipeline = wds.DataPipeline(
        wds.ResampledShards(urls, seed=5, deterministic=True),
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        wds.decode(),
        wds.to_tuple("__key__", "words.json"),
        wds.batched(5, collation_fn=None),
    )
    options = {"persistent_workers": workers > 0}
    loader = wds.WebLoader(pipeline, batch_size=None, num_workers=workers, **options)
    for batch in loader.with_epoch(9):
        yield "pipeline", batch


def fluid(urls, workers):
    dataset = samples(urls, 7).map_tuple(str, torch.from_numpy)
    loader = wds.WebLoader(dataset, batch_size=4, num_workers=workers)
    yield from (("fluid", batch) for batch in loader)


def main():
    urls = write_shards("shards")
    for workers in (0, 2):
        for part in (loaded, of_pipeline, fluid):
            for name, value in part(urls, workers):
                yield f"{workers} workers, {name}", value
