"""Tests that a loader or chain without any output warns at the user's line."""

import warnings

import pytest

import gristmill as g
from gristmill import operations


class Even(g.FilterTransform):
    def filter(self, x):
        return x % 2 == 0


class Copies(g.experimental.FlatMapTransform):
    max_fan_out = 9

    def flat_map(self, x):
        return [x] * 9


def always_one(records):
    yield g.Record(g.RecordMetadata(0), 1)


class Nothing:
    def __len__(self):
        return 0

    def __getitem__(self, index):
        raise IndexError(index)


WHOLE = g.Batch(32, drop_remainder=True)
NO_RECORDS = "There are no records for"
TOO_FEW = r"Each of its 4 streams has at most 25 of 100 records\. Batch\(batch_size=32"


def loader(records, *steps, shard=None, **arguments):
    shard = shard or g.NoSharding()
    sampler = g.IndexSampler(records, shard, num_epochs=1) if records else Nothing()
    return g.DataLoader(
        data_source=range(records or 1),  # An empty one is refused.
        sampler=sampler,
        operations=steps,
        shard_options=shard,
        **arguments,
    )


def chain(elements, workers, *, batched=False, **arguments):
    ds = g.MapDataset.range(elements)
    ds = ds.batch(32, drop_remainder=True) if batched else ds
    ds = ds.to_iter_dataset().map(abs).filter(lambda x: True)
    ds = ds if batched else ds.batch(32, drop_remainder=True)
    return ds.mp_prefetch(g.MultiprocessingOptions(num_workers=workers), **arguments)


EMPTY = {
    "streams": (lambda: loader(100, WHOLE, worker_count=4), TOO_FEW),
    "a filter": (lambda: loader(100, Even(), WHOLE, worker_count=4), TOO_FEW),
    "bad records": (
        lambda: loader(100, WHOLE, worker_count=4, on_error="skip"),
        TOO_FEW,
    ),
    "a load": (
        lambda: g.load(
            range(100), batch_size=32, drop_remainder=True, worker_count=4, num_epochs=1
        ),
        TOO_FEW,
    ),
    "an old operation": (
        lambda: loader(9, operations.BatchOperation(10, drop_remainder=True)),
        "gets at most 9 elements, and makes a batch of 10",
    ),
    "a shard": (
        lambda: loader(60, WHOLE, shard=g.ShardOptions(0, 2)),
        "gets at most 30 elements, and makes a batch of 32",
    ),
    "batches of batches": (
        lambda: loader(100, g.Batch(10), g.Batch(11, drop_remainder=True)),
        "gets at most 10 elements, and makes a batch of 11",
    ),
    "no records": (lambda: loader(0), NO_RECORDS),
    "a flat map of none": (lambda: loader(0, Copies()), NO_RECORDS),
    "a shard without records": (
        lambda: loader(3, shard=g.ShardOptions(3, 8)),
        r"There are no records for ShardOptions\(shard_index=3, shard_count=8",
    ),
    "streams of a chain": (
        lambda: chain(100, 4),
        r"Each of its 4 streams has at most 25 of 100 elements\. BatchIterDataset",
    ),
    "a batched chain": (lambda: chain(3, 2, batched=True), "dataset has no elements"),
}
FULL = {
    "enough records": lambda: loader(128, WHOLE, worker_count=4),
    "one stream has enough": lambda: loader(125, WHOLE, worker_count=4),
    "one stream": lambda: loader(100, WHOLE, worker_count=4, streams=1),
    "a remainder": lambda: loader(1, g.Batch(32), worker_count=4),
    "a flat map": lambda: loader(4, Copies(), WHOLE),
    "a function of an iterator": lambda: loader(0, always_one),
    "no end": lambda: g.load(range(2), batch_size=32, drop_remainder=True),
    "a chain": lambda: chain(125, 4),
    "one stream of a chain": lambda: chain(100, 4, streams=1),
    "a chain of batches": lambda: chain(100, 4, batched=True),
    "a chain that is cut in pieces": lambda: chain(9, 4, sequential_slice=True),
    "an endless chain": lambda: (
        g.MapDataset.range(3)
        .repeat()
        .to_iter_dataset()
        .batch(9, drop_remainder=True)
        .mp_prefetch(g.MultiprocessingOptions(num_workers=2))
    ),
}


@pytest.mark.claim(
    "A loader yields nothing, without a warning, if no stream has a full batch"
)
@pytest.mark.parametrize("name", EMPTY)
def test_empty_loader_warns_at_user_line(name):
    make, message = EMPTY[name]
    with pytest.warns(UserWarning, match=message) as caught:
        made = make()
    [warning] = caught
    assert str(warning.message).startswith(("This loader gives no", "This chain giv"))
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if not name.endswith("chain") and made.multiprocessing_options.num_workers == 0:
            assert list(made) == []


@pytest.mark.parametrize("name", FULL)
def test_loader_that_may_have_output_does_not_warn(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FULL[name]()
    assert caught == []


@pytest.mark.multiprocess
@pytest.mark.parametrize("name", ["streams", "streams of a chain"])
def test_workers_of_empty_loader_give_nothing(name):
    assert list(EMPTY[name][0]()) == []


@pytest.mark.multiprocess
@pytest.mark.parametrize("name", ["one stream has enough", "a chain"])
def test_workers_give_the_only_full_batch(name):
    assert len(list(FULL[name]())) == 1
