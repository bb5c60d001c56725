"""Tests of sources that pick a shard by the number in their thread's name."""

import itertools
import threading

import pytest

from differential.pipelines import OURS, THEIRS, ready

RECORDS = 10**10  # Such sources claim a large length.


def number():
    """Return the number that the thread pool put in this thread's name."""
    return int(threading.current_thread().name.split("_")[1])


class Shards:
    """Returns the next record of the current thread's shard, for any index."""

    def __init__(self, shards):
        self.shards = shards
        self.iterators = []

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        if not self.iterators:
            self.iterators = [iter(range(s, 10**6, 100)) for s in range(self.shards)]
        return next(self.iterators[self.mine()])

    def mine(self):
        return number()


class Lenient(Shards):
    """Uses the first shard in threads outside a pool."""

    def mine(self):
        name = threading.current_thread().name.split("_")[-1]
        return int(name) if name.isdigit() else 0


def loader(library, source, workers=0, threads=1, batch=3):
    """Return a loader of batches that reads its source ahead."""
    legacy = ready(library)
    return legacy.DataLoader(
        data_source=source,
        sampler=legacy.IndexSampler(RECORDS, legacy.NoSharding(), num_epochs=1),
        operations=[legacy.Batch(batch)],
        worker_count=workers,
        read_options=legacy.ReadOptions(threads, 16),
    )


def first_three(batches):
    """Return the first three batches of a new iterator."""
    return [batch.tolist() for batch in itertools.islice(batches, 3)]


@pytest.mark.parametrize("kind", [Shards, Lenient])
def test_one_thread_reads_the_same_as_in_grain(kind):
    pytest.importorskip("grain")
    ours, theirs = (first_three(loader(each, kind(2))) for each in (OURS, THEIRS))
    assert ours == theirs == [[0, 100, 200], [300, 400, 500], [600, 700, 800]]


@pytest.mark.multiprocess
def test_each_iterator_has_its_own_source_in_worker():
    batches = loader(OURS, Shards(2), workers=1)
    assert first_three(batches) == first_three(batches)


class Meeting(Lenient):
    """A source whose reads wait until one thread per shard reads."""

    def __init__(self, shards):
        super().__init__(shards)
        self.barrier = threading.Barrier(shards)

    def __getitem__(self, index):
        self.barrier.wait(10)
        return super().__getitem__(index)


def test_each_thread_reads_its_own_shard():
    first = next(iter(loader(OURS, Meeting(4), threads=4, batch=4)))
    assert sorted(first) == [0, 1, 2, 3]


@pytest.mark.parametrize("library", [OURS, THEIRS])
def test_steps_before_to_iter_dataset_run_in_pool(library):
    datasets = pytest.importorskip(library)
    numbers = datasets.MapDataset.range(40).map(lambda _: number())
    assert set(numbers) <= set(range(16))
