"""The pages about samplers and transformations, and about choosing an interface."""

import numpy as np
import pytest


def run(grain, operations, count=4):
    return list(
        grain.DataLoader(
            data_source=grain.sources.RangeDataSource(0, count, 1),
            sampler=grain.samplers.SequentialSampler(count),
            operations=operations,
        )
    )


def test_index_sampler_shuffles_every_epoch_differently(grain):
    sampler = grain.samplers.IndexSampler(
        num_records=5,
        num_epochs=2,
        shard_options=grain.sharding.ShardOptions(
            shard_index=0, shard_count=1, drop_remainder=True
        ),
        shuffle=True,
        seed=0,
    )
    metadata = list(sampler)
    assert [m.index for m in metadata] == list(range(10))
    assert [m.record_key for m in metadata] == [0, 4, 1, 2, 3, 1, 2, 3, 0, 4]
    assert {type(m.rng.bit_generator) for m in metadata} == {np.random.Philox}
    assert [m.rng.integers(100) for m in metadata[:4]] == [3, 45, 45, 86]


def test_users_sampler_orders_the_records(grain):
    class Backwards:
        """Has the sampler protocol: metadata by position, and a length."""

        def __getitem__(self, index):
            if not 0 <= index < 4:
                raise IndexError(index)
            return grain.RecordMetadata(
                index=index, record_key=3 - index, rng=np.random.default_rng(index)
            )

        def __repr__(self):
            return "Backwards()"

    loader = grain.DataLoader(
        data_source=grain.sources.RangeDataSource(0, 4, 1),
        sampler=Backwards(),
        shard_options=grain.sharding.NoSharding(),
    )
    assert list(loader) == [3, 2, 1, 0]


def test_map_changes_an_element(grain):
    class PlusOne(grain.transforms.Map):
        def map(self, x):
            return x + 1

    assert run(grain, [PlusOne()]) == [1, 2, 3, 4]
    assert list(grain.MapDataset.range(4).map(PlusOne())) == [1, 2, 3, 4]


def test_map_with_index_also_sees_the_position(grain):
    class Number(grain.transforms.MapWithIndex):
        def map_with_index(self, i, x):
            return (x + 1, i)

    numbered = grain.MapDataset.range(5, 8).map_with_index(Number())
    assert list(numbered) == [(6, 0), (7, 1), (8, 2)]


def test_random_map_draws_the_same_numbers_in_every_run(grain):
    class PlusRandom(grain.transforms.RandomMap):
        def random_map(self, x, rng):
            return x + rng.integers(100_000)

    dataset = grain.MapDataset.range(4).seed(7).random_map(PlusRandom())
    expected = [88822, 26378, 60641, 24118]
    assert [int(x) for x in dataset] == expected
    assert [int(x) for x in dataset] == expected


def test_flat_map_splits_an_element(grain):
    class Twice(grain.experimental.FlatMapTransform):
        max_fan_out = 2

        def flat_map(self, element):
            for _ in range(self.max_fan_out):
                yield element

    assert run(grain, [Twice()], count=3) == [0, 0, 1, 1, 2, 2]
    split = grain.experimental.FlatMapMapDataset(grain.MapDataset.range(3), Twice())
    assert len(split) == 6
    assert list(split) == [0, 0, 1, 1, 2, 2]


def test_filter_removes_elements(grain):
    class RemoveEvenElements(grain.transforms.Filter):
        def filter(self, element):
            return element % 2

    assert run(grain, [RemoveEvenElements()]) == [1, 3]
    assert list(grain.MapDataset.range(4).filter(RemoveEvenElements())) == [1, 3]


@pytest.mark.parametrize(
    ("drop_remainder", "expected"), [(False, [[0, 1, 2], [3]]), (True, [[0, 1, 2]])]
)
def test_batch_step_works_in_both_interfaces(grain, drop_remainder, expected):
    step = grain.transforms.Batch(batch_size=3, drop_remainder=drop_remainder)
    assert [b.tolist() for b in run(grain, [step])] == expected
    applied = grain.MapDataset.range(4).apply(step)
    assert [b.tolist() for b in applied] == expected


def test_batch_size_is_global_before_sharding_and_local_after(grain):
    step = grain.transforms.Batch(batch_size=2, drop_remainder=True)
    of_all = grain.MapDataset.range(8).apply(step)[1::2]
    of_host = grain.MapDataset.range(8)[1::2].apply(step)
    assert [b.tolist() for b in of_all] == [[2, 3], [6, 7]]
    assert [b.tolist() for b in of_host] == [[1, 3], [5, 7]]
