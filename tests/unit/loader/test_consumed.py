"""`consumed` of a `DataLoader`'s iterator counts the records of delivered outputs."""

import itertools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import gristmill as grain
from gristmill.samplers import DistributedSampler, GroupShuffleSampler

LENGTHS = np.random.default_rng(0).integers(1, 9, 37)
COUNT = len(LENGTHS)


class Documents:
    """Serves the numbers of documents."""

    name = "documents"

    def __len__(self):
        return COUNT

    def __getitem__(self, key):
        return key

    def lengths(self):
        return LENGTHS


class EachFromItsEnd:
    """A user's sampler without `record_keys`."""

    def __len__(self):
        return 2 * COUNT

    def __getitem__(self, index):
        if index >= 2 * COUNT:
            raise IndexError(index)
        return grain.RecordMetadata(index, COUNT - 1 - index % COUNT)


SHARD = grain.ShardOptions(1, 3)
SAMPLERS = {
    "sequential": lambda shard: grain.SequentialSampler(COUNT, shard),
    "shuffled": lambda shard: grain.IndexSampler(
        COUNT, shard, shuffle=True, seed=1, num_epochs=3
    ),
    "endless": lambda shard: grain.IndexSampler(COUNT, shard, shuffle=True, seed=2),
    "groups": lambda shard: GroupShuffleSampler(
        [10, 20, 7], window=2, shard_options=shard, num_epochs=2, seed=3
    ),
    "users": lambda shard: EachFromItsEnd(),
    **{
        remainder: lambda shard, remainder=remainder: DistributedSampler(
            COUNT, shard, 4, True, 2, 5, remainder
        )
        for remainder in ("drop", "wrap")
    },
}


def batch(size, drop=False):
    return grain.Batch(size, drop_remainder=drop, batch_fn=list)


OPERATIONS = {
    "none": [],
    "batch": [batch(3)],
    "whole batches": [batch(4, True)],
    "batches of batches": [batch(2), batch(2, True)],
    "buckets": [
        grain.transforms.BucketBatch(LENGTHS.__getitem__, [4], [3, 2], batch_fn=list)
    ],
    "whole buckets": [
        grain.transforms.BucketBatch(
            LENGTHS.__getitem__, [3, 6], [3, 2, 4], batch_fn=list, drop_remainder=True
        )
    ],
}


@st.composite
def loaders(draw):
    shard = draw(st.sampled_from([grain.NoSharding(), SHARD]))
    sampler = SAMPLERS[draw(st.sampled_from(sorted(SAMPLERS)))](shard)
    name = draw(st.sampled_from(sorted(OPERATIONS)))
    loader = grain.DataLoader(
        data_source=Documents(),
        sampler=sampler,
        operations=OPERATIONS[name],
        shard_options=shard,
        streams=draw(st.integers(1, 3)),
    )
    if not isinstance(sampler, EachFromItsEnd):
        loader.set_epoch(draw(st.integers(0, 2)))
    return loader


@hypothesis.settings(max_examples=25)
@hypothesis.given(loaders(), st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_counts_are_those_of_the_keys_of_outputs(loader, stops):
    iterator = iter(loader)
    expected, outputs = np.zeros(2, int), 0
    for stop in sorted(stops):
        for _ in itertools.islice(iterator, stop - outputs):
            keys = iterator.ids()
            expected += len(keys), LENGTHS[keys].sum()
            outputs += 1
        for fresh in (False, True):
            if fresh:
                state, iterator = iterator.get_state(), iter(loader)
                iterator.set_state(state)
            count = iterator.consumed()["documents"]
            assert [count.elements, count.tokens] == expected.tolist()
            assert count.epochs == count.elements / COUNT


def test_padding_does_not_count():
    sampler = DistributedSampler(COUNT, SHARD, 4, num_epochs=2, remainder="pad")
    operations = [grain.samplers.WithMask(sampler), batch(4)]
    loader = grain.DataLoader(
        data_source=Documents(),
        sampler=sampler,
        operations=operations,
        shard_options=SHARD,
    )
    iterator = iter(loader)
    keys = []
    for output in iterator:
        keys += [key for key, is_real in output if is_real]
        count = iterator.consumed()["documents"]
        assert (count.elements, count.tokens) == (len(keys), LENGTHS[keys].sum())
    assert len(keys) == 2 * 12


class IsEven(grain.FilterTransform):
    def filter(self, key):
        return key % 2 == 0


class Copies(grain.experimental.FlatMapTransform):
    max_fan_out = 3

    def flat_map(self, key):
        return [key] * (key % 3)


def load(*operations, **arguments):
    loader = grain.load(
        Documents(), transformations=operations, num_epochs=1, **arguments
    )
    return iter(loader)


def test_records_that_a_filter_drops_count():
    iterator = load(IsEven(), batch_size=2)
    counts = []
    for output in itertools.islice(iterator, 3):
        counts.append(iterator.consumed()["documents"].elements)
        assert counts[-1] == output[-1] + 1
    assert counts == [3, 7, 11]


def test_records_with_a_part_delivered_count():
    iterator = load(Copies())
    for key in itertools.islice(iterator, 9):
        count = iterator.consumed()["documents"]
        assert (count.elements, count.tokens) == (key + 1, LENGTHS[: key + 1].sum())
    list(iterator)
    assert iterator.consumed()["documents"].epochs == 1


def test_all_records_count_after_batches_of_buckets():
    buckets = OPERATIONS["buckets"]
    for size in (2, 5):
        iterator = load(*buckets, batch(size, True))
        list(iterator)
        assert iterator.consumed()["documents"].epochs == 1


@pytest.mark.multiprocess
def test_outputs_that_workers_computed_ahead_do_not_count():
    iterator = load(batch_size=3, worker_count=2)
    keys = [key for _ in range(3) for key in next(iterator).tolist()]
    count = iterator.consumed()["documents"]
    assert (count.elements, count.tokens) == (9, LENGTHS[keys].sum())
    iterator.close()


def test_counts_follow_an_iterator_that_goes_back():
    loader = grain.load(Documents(), shuffle=True, seed=1, batch_size=10)
    iterator = iter(loader)
    counts, states = [], []
    for _ in range(12):
        next(iterator)
        states.append(iterator.get_state())
        counts.append(iterator.consumed())
    for place in (9, 0, 11, 3, 4):
        iterator.set_state(states[place])
        assert iterator.consumed() == counts[place]
    assert counts[11]["documents"].epochs == pytest.approx(120 / COUNT)


def test_far_position_counts_each_epoch_once():
    loader = grain.load(Documents(), shuffle=True, seed=1, batch_size=COUNT)
    iterator = iter(loader)
    state = iterator.get_state().replace(b'"0": -1', b'"0": %d' % (COUNT * 10**12 - 1))
    iterator.set_state(state)
    count = iterator.consumed()["documents"]
    assert (count.tokens, count.epochs) == (10**12 * LENGTHS.sum(), 10**12)


def test_given_lengths_count_the_tokens_of_any_source():
    iterator = iter(grain.load({"x": np.arange(5)}, batch_size=2))
    next(iterator)
    [(name, count)] = iterator.consumed().items()
    assert (count.elements, count.tokens, count.epochs) == (2, None, 0.4)
    lengths = {name: [5, 4, 3, 2, 1]}
    assert iterator.consumed(lengths)[name].tokens == 9
    with pytest.raises(ValueError, match="must be 5 ints, one for each record"):
        iterator.consumed({name: [1]})
    with pytest.raises(ValueError, match="lengths must have names of sources"):
        iterator.consumed({"x": [1] * 5})


class LetterSampler:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return grain.RecordMetadata(index, "abca"[index])


class Letters(dict):
    name = "letters"


def test_records_with_names_count():
    source = Letters(a=1, b=2, c=3)
    loader = grain.DataLoader(
        data_source=source,
        sampler=LetterSampler(),
        shard_options=grain.NoSharding(),
    )
    iterator = iter(loader)
    assert [next(iterator), next(iterator)] == [1, 2]
    count = iterator.consumed()["letters"]
    assert (count.elements, count.epochs) == (2, pytest.approx(2 / 3))
    with pytest.raises(TypeError, match=r"keys of records must be ints .* got 'a'"):
        iterator.consumed({"letters": [1, 2, 3]})


def test_source_without_a_length_has_no_epochs():
    class Squares:
        name = "squares"

        def __getitem__(self, key):
            return key * key

    sampler = grain.IndexSampler(9, num_epochs=1)
    iterator = iter(grain.DataLoader(data_source=Squares(), sampler=sampler))
    assert [next(iterator) for _ in range(3)] == [0, 1, 4]
    count = iterator.consumed()["squares"]
    assert (count.elements, count.tokens, count.epochs) == (3, None, None)
    with pytest.raises(ValueError, match="'squares' cannot be used, because"):
        iterator.consumed({"squares": [1] * 9})


def test_operations_that_hold_back_records_raise():
    iterator = load(lambda records: records)
    with pytest.raises(TypeError, match="holds back are not known"):
        iterator.consumed()
    next(iterator)
    assert iterator.report().sources == ()


def test_report_shows_the_counts():
    iterator = load(batch_size=4)
    next(iterator)
    counts = iterator.consumed()
    tokens = LENGTHS[:4].sum()
    assert dict(iterator.report().sources) == counts
    assert f"Delivered from documents: 4 elements, {tokens}" in str(iterator.report())
