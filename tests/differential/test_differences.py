"""Where Gristmill's DataLoader differs from Grain's on purpose, both sides shown.

The differential tests keep these cases out; here each is run in both libraries,
so a new version of Grain that changes one of them is noticed.
"""

import dataclasses
import importlib
import json

import numpy as np
import pytest

from differential.pipelines import OURS, THEIRS, ready


def range_loader(library, operations=(), *, records=7, shards=(0, 1), seed=None):
    """Return a DataLoader of range(records), one epoch, in order."""
    legacy = ready(library)
    options = legacy.ShardOptions(*shards)
    sampler = legacy.IndexSampler(
        records, shard_options=options, num_epochs=1, seed=seed
    )
    source = legacy.RangeDataSource(0, records, 1)
    return legacy.DataLoader(data_source=source, sampler=sampler, operations=operations)


def elements_of(library, operations=(), **options):
    """Return the elements of a range_loader as a list."""
    return list(range_loader(library, operations, **options))


def split_in_two(library):
    """Return a FlatMap that makes (x, 0) and (x, 1) of x."""
    base = importlib.import_module(library).experimental.FlatMapTransform

    class Split(base):
        max_fan_out = 2

        def flat_map(self, element):
            return [(element, 0), (element, 1)]

    return Split()


def draw(library):
    """Return a RandomMap to (element, one uniform or None without rng)."""

    class Draw(ready(library).RandomMapTransform):
        def random_map(self, element, rng):
            return element, None if rng is None else rng.uniform()

    return Draw()


def number(library):
    """Return a MapWithIndex to (index, element)."""

    @dataclasses.dataclass
    class Number(ready(library).MapWithIndexTransform):
        def map_with_index(self, index, element):
            return index, element

    return Number()


def test_first_shards_get_the_remainder():
    shards = [(0, 2), (1, 2)]
    theirs = [elements_of(THEIRS, shards=shard) for shard in shards]
    ours = [elements_of(OURS, shards=shard) for shard in shards]
    assert theirs == [[0, 1, 2], [4, 5, 6]]
    assert ours == [[0, 1, 2, 3], [4, 5, 6]]


def test_dropped_remainder_is_dropped_by_both():
    for shard in [(0, 2, True), (1, 2, True)]:
        assert elements_of(OURS, shards=shard) == elements_of(THEIRS, shards=shard)


def test_generator_goes_on_through_the_splits_of_a_record():
    theirs = elements_of(THEIRS, [split_in_two(THEIRS), draw(THEIRS)], seed=5)
    ours = elements_of(OURS, [split_in_two(OURS), draw(OURS)], seed=5)
    assert [element for element, _ in ours] == [element for element, _ in theirs]
    assert {drawn for _, drawn in theirs} == {None}
    expected = []
    for index in range(7):
        rng = np.random.Generator(np.random.Philox(key=5 + index))
        expected += [rng.uniform(), rng.uniform()]
    assert [drawn for _, drawn in ours] == expected


def test_a_batch_of_splits_has_a_generator_of_its_own():
    def drawn(library):
        batch = ready(library).Batch(1, batch_fn=lambda splits: splits[0])
        made = elements_of(
            library, [split_in_two(library), batch, draw(library)], seed=5
        )
        return [number for _, number in made]

    assert set(drawn(THEIRS)) == {None}
    assert len(set(drawn(OURS))) == 14


def test_map_with_index_gets_the_global_index():
    with pytest.raises(TypeError, match="not callable"):
        elements_of(THEIRS, [number(THEIRS)], records=6, shards=(1, 2))
    ours = elements_of(OURS, [number(OURS)], records=6, shards=(1, 2))
    assert ours == [(1, 3), (3, 4), (5, 5)]


def test_finished_flat_map_restores_its_state_as_it_was():
    restored = {}
    for library in (THEIRS, OURS):
        iterator = iter(range_loader(library, [split_in_two(library)]))
        assert len(list(iterator)) == 14
        state = iterator.get_state()
        again = iter(range_loader(library, [split_in_two(library)]))
        again.set_state(state)
        assert list(again) == []
        restored[library] = json.loads(again.get_state())
        assert json.loads(state) == {
            "parent": {"next_index": 7},
            "next_index_in_buffer": 2,
        }
    assert restored[THEIRS]["next_index_in_buffer"] == 0
    assert restored[OURS]["next_index_in_buffer"] == 2


class Recorded:
    """Serves the integers below 12, and remembers which were asked for."""

    def __init__(self):
        self.asked = []

    def __len__(self):
        return 12

    def __getitem__(self, key):
        self.asked.append(key)
        return key

    def __repr__(self):
        return "Recorded()"


class InReverse:
    """Gives the records back by threes, the last one first."""

    def __call__(self, records):
        for one, two, three in zip(records, records, records, strict=True):
            yield from (three, two, one)


@pytest.mark.claim("what a legacy operation holds back is lost on resume")
@pytest.mark.claim(
    "Callables over an iterator of records (Grain's legacy operations) may hold "
    "records back, which no position describes: resuming computes all outputs since "
    "the iterator was made again, and warns once."
)
def test_what_a_legacy_operation_holds_back_is_computed_again(caplog):
    def loader(library, source):
        legacy = ready(library)
        return legacy.DataLoader(
            data_source=source,
            sampler=legacy.SequentialSampler(12, legacy.NoSharding()),
            operations=[InReverse()],
            read_options=legacy.ReadOptions(0, 0),
        )

    rests, asked = {}, {}
    for library in (THEIRS, OURS):
        iterator = iter(loader(library, Recorded()))
        assert [next(iterator) for _ in range(4)] == [2, 1, 0, 5]
        source = Recorded()
        again = iter(loader(library, source))
        again.set_state(iterator.get_state())
        rests[library], asked[library] = list(again), source.asked
    assert rests[OURS] == [4, 3, 8, 7, 6, 11, 10, 9]
    assert asked[OURS] == list(range(12))
    assert rests[THEIRS] != rests[OURS]
    assert 3 not in asked[THEIRS]
    iter(loader(OURS, Recorded())).get_state()
    warned = [r.message for r in caplog.records if "computed again" in r.message]
    assert len(warned) == 1
    assert warned[0].startswith("InReverse keeps records back without a state")
