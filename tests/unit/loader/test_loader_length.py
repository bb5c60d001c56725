"""`len(loader)` is what iterating gives, or a TypeError that says why it is unknown."""

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


batches = st.builds(grain.Batch, st.integers(1, 5), st.booleans())


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
def test_it_is_the_number_of_outputs(
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
def test_it_is_what_each_sampler_gives(sampler):
    made = grain.DataLoader(
        data_source=range(11), sampler=sampler, operations=[grain.Batch(4)], streams=2
    )
    assert len(made) == sum(1 for _ in iter(made))


class Seven:
    """A sampler without a length: the loader looks for its end."""

    def __getitem__(self, index):
        if index >= 7:
            raise IndexError(index)
        return grain.RecordMetadata(index, index)


def test_it_is_known_of_samplers_without_a_length():
    made = grain.DataLoader(
        data_source=range(7), sampler=Seven(), shard_options=grain.NoSharding()
    )
    assert len(made) == 7


@pytest.mark.multiprocess
def test_it_counts_what_workers_give():
    made = loader(23, [grain.Batch(4)], worker_count=3)
    # 8, 8 and 7 records: two batches each.
    assert len(made) == 6 == len(list(made))


def test_substituted_records_count():
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
def test_where_it_is_unknown_a_type_error_says_why(name):
    made, why = UNKNOWN[name]
    with pytest.raises(TypeError) as raised:
        len(made)
    assert str(raised.value).startswith("object of type 'DataLoader' has no len(): ")
    assert why in str(raised.value)


def length_to_lightning(made):
    # Here, since importing it makes each fork of this process slower.
    from lightning.fabric.utilities.data import sized_len

    return sized_len(made)


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_asks_for_a_length_by_the_way_goes_without(name):
    made, _ = UNKNOWN[name]
    assert bool(made)
    assert operator.length_hint(made, 5) == 5
    assert length_to_lightning(made) is None


def test_a_list_is_made_without_a_length():
    assert list(UNKNOWN["filter"][0]) == [0, 0, 2, 2, 4, 4]


def test_a_loader_that_gives_nothing_is_true():
    made = loader(3, [grain.Batch(4, drop_remainder=True)])
    assert len(made) == 0
    assert bool(made)
    assert list(made) == []
    assert length_to_lightning(loader(10)) == 10
