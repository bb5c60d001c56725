"""Sources that choose by the number in their thread's name are read as Grain reads."""

import itertools
import threading

import pytest

from differential.pipelines import OURS, THEIRS, ready

RECORDS = 10**10  # As long as such sources say that they are.


def number():
    """Return the number that a pool gave to this thread."""
    return int(threading.current_thread().name.split("_")[1])


class Shards:
    """Returns what is next in the shard of the thread, whatever it is asked for."""

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
    """Takes the first shard in threads that are not a pool's."""

    def mine(self):
        name = threading.current_thread().name.split("_")[-1]
        return int(name) if name.isdigit() else 0


def loader(library, source, workers=0, threads=1, batch=3):
    """Return a loader of batches, whose source is read ahead."""
    legacy = ready(library)
    return legacy.DataLoader(
        data_source=source,
        sampler=legacy.IndexSampler(RECORDS, legacy.NoSharding(), num_epochs=1),
        operations=[legacy.Batch(batch)],
        worker_count=workers,
        read_options=legacy.ReadOptions(threads, 16),
    )


def first_three(batches):
    """Return the first batches of a new iterator."""
    return [batch.tolist() for batch in itertools.islice(batches, 3)]


@pytest.mark.parametrize("kind", [Shards, Lenient])
def test_one_thread_reads_what_it_reads_in_grain(kind):
    pytest.importorskip("grain")
    ours, theirs = (first_three(loader(each, kind(2))) for each in (OURS, THEIRS))
    assert ours == theirs == [[0, 100, 200], [300, 400, 500], [600, 700, 800]]


@pytest.mark.multiprocess
def test_each_iterators_worker_has_a_source_of_its_own():
    batches = loader(OURS, Shards(2), workers=1)
    assert first_three(batches) == first_three(batches)


class Meeting(Lenient):
    """A source whose reads wait until as many threads as shards read."""

    def __init__(self, shards):
        super().__init__(shards)
        self.barrier = threading.Barrier(shards)

    def __getitem__(self, index):
        self.barrier.wait(10)
        return super().__getitem__(index)


def test_each_thread_reads_a_shard_of_its_own():
    first = next(iter(loader(OURS, Meeting(4), threads=4, batch=4)))
    assert sorted(first) == [0, 1, 2, 3]


@pytest.mark.parametrize("library", [OURS, THEIRS])
def test_steps_before_to_iter_dataset_have_a_number(library):
    datasets = pytest.importorskip(library)
    numbers = datasets.MapDataset.range(40).map(lambda _: number())
    assert set(numbers) <= set(range(16))
