"""Tests of len(loader): the number of outputs, or a TypeError with a reason."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as grain
from gristmill.samplers import GroupShuffleSampler


class Half(grain.MapTransform):
    def map(self, element):
        return element // 2


class Nothing(grain.MapTransform):
    def map(self, element):
        return None


class Even(grain.FilterTransform):
    def filter(self, element):
        return element % 2 == 0


class Twice(grain.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element):
        return [element, element]


class Indexed(grain.MapWithIndex):
    def map_with_index(self, index, element):
        return index


class Noisy(grain.RandomMapTransform):
    def random_map(self, element, rng):
        return rng.random()


def loader(records=10, operations=(), num_epochs=1, **options):
    sampler = grain.IndexSampler(records, num_epochs=num_epochs, seed=0)
    return grain.DataLoader(
        data_source=range(records), sampler=sampler, operations=operations, **options
    )


# A batch becomes an int, so that batches of different sizes can be batched again.
batches = st.builds(grain.Batch, st.integers(1, 5), st.booleans(), st.just(len))


@given(
    records=st.integers(1, 40),
    num_epochs=st.integers(1, 3),
    shards=st.integers(1, 4),
    drop_remainder=st.booleans(),
    streams=st.integers(1, 5),
    operations=st.lists(
        batches | st.sampled_from([Nothing(), Indexed(), Noisy()]), max_size=4
    ),
    data=st.data(),
)
def test_length_is_number_of_outputs(
    records, num_epochs, shards, drop_remainder, streams, operations, data
):
    index = data.draw(st.integers(0, shards - 1))
    options = grain.ShardOptions(index, shards, drop_remainder)
    made = loader(
        records, operations, num_epochs, streams=streams, shard_options=options
    )
    iterator = iter(made)
    assert len(made) == sum(1 for _ in iterator)


@pytest.mark.parametrize(
    "sampler",
    [
        grain.SequentialSampler(11),
        grain.IndexSampler(
            11, grain.ShardOptions(1, 2), shuffle=True, num_epochs=3, seed=1
        ),
        GroupShuffleSampler([3, 3, 5], num_epochs=2, seed=1),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_length_is_number_of_outputs_of_each_sampler(sampler):
    made = grain.DataLoader(
        data_source=range(11), sampler=sampler, operations=[grain.Batch(4)], streams=2
    )
    assert len(made) == sum(1 for _ in iter(made))


class Seven:
    """A sampler without a length, whose end the loader searches for."""

    def __getitem__(self, index):
        if index >= 7:
            raise IndexError(index)
        return grain.RecordMetadata(index, index)


def test_length_with_unsized_sampler_is_found():
    made = grain.DataLoader(
        data_source=range(7), sampler=Seven(), shard_options=grain.NoSharding()
    )
    assert len(made) == 7


@pytest.mark.multiprocess
def test_length_counts_batches_of_workers():
    made = loader(23, [grain.Batch(4)], worker_count=3)
    # The workers have 8, 8 and 7 records, so two batches each.
    assert len(made) == 6 == len(list(made))


def test_length_includes_substituted_records():
    made = loader(10, [Half(), grain.Batch(4)], on_error="substitute")
    assert len(made) == 3 == len(list(made))


def as_it_is(records):
    return records


UNKNOWN = {
    "filter": (loader(operations=[Half(), Even()]), "Even may give more or fewer"),
    "flat-map": (loader(operations=[Twice()]), "Twice may give more or fewer"),
    "callable": (loader(operations=[as_it_is]), "function may give more or fewer"),
    "skip": (loader(on_error="skip"), "on_error='skip' may leave records out"),
    "endless": (loader(num_epochs=None), "its sampler has no end. Pass num_epochs"),
    "endless shard": (
        loader(num_epochs=None, shard_options=grain.ShardOptions(2, 3)),
        "its sampler has no end",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_length_raises_with_reason(name):
    made, why = UNKNOWN[name]
    with pytest.raises(TypeError) as raised:
        len(made)
    assert str(raised.value).startswith("object of type 'DataLoader' has no len(): ")
    assert why in str(raised.value)


def length_to_lightning(made):
    # Imported here, because the import makes each fork of this process slower.
    from lightning.fabric.utilities.data import sized_len

    return sized_len(made)


@pytest.mark.parametrize("name", UNKNOWN)
def test_optional_length_queries_do_not_raise(name):
    made, _ = UNKNOWN[name]
    assert bool(made)
    assert operator.length_hint(made, 5) == 5
    assert length_to_lightning(made) is None


def test_list_does_not_need_a_length():
    assert list(UNKNOWN["filter"][0]) == [0, 0, 2, 2, 4, 4]


def test_empty_loader_is_true():
    made = loader(3, [grain.Batch(4, drop_remainder=True)])
    assert len(made) == 0
    assert bool(made)
    assert list(made) == []
    assert length_to_lightning(loader(10)) == 10
