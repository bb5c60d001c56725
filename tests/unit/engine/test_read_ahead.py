"""Reading ahead begins while the first read waits.

Each read of `Gathering` waits until eight others have begun, so that nothing is read at
all unless nine threads read at once.
"""

import threading

import numpy as np
import pytest

import gristmill as g

OTHERS = 8
RECORDS = 64
# A failing test must report, not wait forever.
GIVE_UP_S = 30


class Gathering:
    """Serves numbers; each read waits for eight others in the same process."""

    def __init__(self, records=RECORDS):
        self.records = records
        self.state = None

    def __len__(self):
        return self.records

    def __getstate__(self):
        return {"records": self.records, "state": None}

    def __getitem__(self, key):
        if self.state is None:
            self.state = threading.Condition(), []
        changed, begun = self.state
        with changed:
            begun.append(key)
            changed.notify_all()
            if not changed.wait_for(lambda: len(begun) > OTHERS, GIVE_UP_S):
                raise TimeoutError(f"only {begun} were read at once")
        return key


class Together(Gathering):
    """Also reads blocks, one record after another."""

    def __getitems__(self, keys):
        return [self[key] for key in keys]


SOURCES = [Gathering, Together]
WORKERS = [0, pytest.param(2, marks=pytest.mark.multiprocess)]


def loaded(source, operations, workers):
    return g.DataLoader(
        data_source=source,
        sampler=g.SequentialSampler(len(source)),
        operations=operations,
        worker_count=workers,
    )


def in_workers(dataset, workers):
    if not workers:
        return dataset
    return dataset.mp_prefetch(g.MultiprocessingOptions(num_workers=workers))


def flat(elements):
    return np.concatenate([np.atleast_1d(element) for element in elements]).tolist()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("operations", [[], [g.Batch(16)]], ids=["single", "batch"])
def test_loader_reads_ahead_while_its_first_read_waits(source, workers, operations):
    elements = flat(loaded(source(), operations, workers))
    assert sorted(elements) == list(range(RECORDS))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("slow", ["source", "blocks", "map", "sparse"])
@pytest.mark.parametrize("batch", [None, 16])
def test_chain_reads_ahead_while_its_first_read_waits(workers, slow, batch):
    if slow in ("source", "blocks"):
        dataset = g.MapDataset.source(Gathering() if slow == "source" else Together())
    else:
        dataset = g.MapDataset.source(range(RECORDS)).map(Gathering().__getitem__)
    if slow == "sparse":
        dataset = dataset.filter(lambda x: True)
    dataset = dataset.to_iter_dataset()
    dataset = dataset if batch is None else dataset.batch(batch)
    elements = flat(in_workers(dataset, workers))
    assert sorted(elements) == list(range(RECORDS))


def test_interleave_opens_ahead_while_its_first_dataset_waits():
    opened = threading.Barrier(2, timeout=GIVE_UP_S)

    def open_part(index):
        if index < 2:
            opened.wait()
        return g.MapDataset.range(index, index + 1).to_iter_dataset()

    parts = g.MapDataset.range(4).map(open_part)
    interleaved = g.experimental.InterleaveIterDataset(parts, cycle_length=2)
    assert list(interleaved) == [0, 1, 2, 3]


def test_records_before_a_slow_one_are_not_held_back():
    go_on = threading.Event()

    class Source(Gathering):
        def __getitem__(self, key):
            element = super().__getitem__(key)
            if key == 20 and not go_on.wait(GIVE_UP_S):
                raise TimeoutError("the elements before it did not come")
            return element

    iterator = iter(loaded(Source(), [], 0))
    assert [next(iterator) for _ in range(20)] == list(range(20))
    go_on.set()
    assert list(iterator) == list(range(20, RECORDS))
