"""Loads speech in batches of equal duration from lhotse's samplers and tar files.

Uses `DynamicBucketingSampler` with a stop in the middle, `ZipSampler`, and
`IterableDatasetWrapper`, whose samplers run in persistent workers.
"""

import itertools
import pathlib
import random

import numpy as np
import soundfile
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment
from lhotse.dataset import (
    AudioSamples,
    DynamicBucketingSampler,
    DynamicCutSampler,
    IterableDatasetWrapper,
    K2SpeechRecognitionDataset,
    PerturbVolume,
    RandomizedSmoothing,
    ZipSampler,
    make_worker_init_fn,
)
from lhotse.utils import fix_random_seed
from torch.utils.data import DataLoader

RATE = 4000


def write_speech(name, count, seed):
    """Write noise as WAV files, and return a cut of each."""
    draws = np.random.default_rng(seed)
    folder = pathlib.Path(name)
    folder.mkdir()
    cuts = []
    for number in range(count):
        path = folder / f"{name}-{number}.wav"
        samples = draws.integers(RATE // 5, RATE)
        soundfile.write(path, draws.uniform(-0.3, 0.3, samples), RATE)
        recording = Recording.from_file(path)
        words = SupervisionSegment(
            f"words-{path.stem}",
            recording.id,
            start=0,
            duration=recording.duration,
            text=f"word {number}",
        )
        cuts.append(
            MonoCut(
                path.stem,
                start=0,
                duration=recording.duration,
                channel=0,
                recording=recording,
                supervisions=[words],
            )
        )
    return CutSet.from_cuts(cuts)


def dataset():
    return K2SpeechRecognitionDataset(
        input_strategy=AudioSamples(),
        cut_transforms=[PerturbVolume(p=0.5, randgen=random.Random(11))],
        input_transforms=[RandomizedSmoothing(p=0.5)],
        return_cuts=True,
    )


def plain(batch):
    """Replace each cut with its id and the text of its custom fields."""
    words = dict(batch["supervisions"])
    words["cut"] = [(cut.id, str(cut.custom)) for cut in words["cut"]]
    return {**batch, "supervisions": words}


def bucketing(cuts):
    return DynamicBucketingSampler(
        cuts, max_duration=3.0, num_buckets=4, shuffle=True, seed=5, buffer_size=60
    )


def bucketed(cuts, workers):
    """Yield two epochs, and the rest of the second after a stop."""
    sampler = bucketing(cuts)
    loader = DataLoader(
        dataset(),
        sampler=sampler,
        batch_size=None,
        num_workers=workers,
        worker_init_fn=make_worker_init_fn(seed=9),
    )
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in itertools.islice(loader, 6 if epoch else None):
            yield f"epoch {epoch}", plain(batch)
    state = bucketing_state(cuts)
    resumed = bucketing(cuts)
    resumed.load_state_dict(state)
    loader = DataLoader(
        dataset(), sampler=resumed, batch_size=None, num_workers=workers
    )
    for batch in loader:
        yield "resumed", [cut.id for cut in batch["supervisions"]["cut"]]


def bucketing_state(cuts):
    """Return the state of a sampler after six batches of its second epoch."""
    sampler = bucketing(cuts)
    sampler.set_epoch(1)
    list(itertools.islice(sampler, 6))
    return sampler.state_dict()


class Pairs(K2SpeechRecognitionDataset):
    """Takes a pair from `ZipSampler`: a set of cuts from each of its two samplers."""

    def __getitem__(self, pair):
        return [super(Pairs, self).__getitem__(cuts) for cuts in pair]


def zipped(cuts, others, workers):
    sampler = ZipSampler(
        DynamicCutSampler(cuts, max_cuts=4, shuffle=True, drop_last=True),
        DynamicCutSampler(others, max_cuts=3),
        merge_batches=False,
    )
    pairs = Pairs(input_strategy=AudioSamples())
    loader = DataLoader(pairs, sampler=sampler, batch_size=None, num_workers=workers)
    for batch in loader:
        yield "pair", batch


def in_workers(cuts, workers):
    """Yield epochs of tar files. Each worker reads and samples by itself."""
    folder = pathlib.Path("shards")
    if not folder.exists():
        folder.mkdir()
        cuts.to_shar(folder, fields={"recording": "flac"}, shard_size=5)
    stored = CutSet.from_shar(
        in_dir=folder,
        shuffle_shards=True,
        stateful_shuffle=True,
        seed=3,
        split_for_dataloading=True,
    )
    sampler = DynamicCutSampler(stored, max_cuts=4, shuffle=True, rank=0, world_size=1)
    loader = DataLoader(
        IterableDatasetWrapper(dataset(), sampler, auto_increment_epoch=True),
        batch_size=None,
        num_workers=workers,
        worker_init_fn=make_worker_init_fn(rank=0, world_size=1, seed=9),
        persistent_workers=workers > 0,
    )
    for epoch in range(3):
        for batch in loader:
            yield f"epoch {epoch}", plain(batch)


def main():
    fix_random_seed(0)
    cuts, others = write_speech("speech", 40, seed=1), write_speech("noise", 24, seed=2)
    for workers in (0, 2):
        runs = {
            "buckets": bucketed(cuts, workers),
            "zip": zipped(cuts, others, workers),
            "in workers": in_workers(cuts, workers),
        }
        for name, values in runs.items():
            for part, value in values:
                yield f"{workers} workers, {name}, {part}", value
