"""Intended differences from Grain's DataLoader, shown in both libraries.

The other differential tests avoid these cases. Each runs in both libraries here, so a
new version of Grain that changes one of them is noticed.
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
    """Return the list of elements of a range_loader."""
    return list(range_loader(library, operations, **options))


def split_in_two(library):
    """Return a FlatMap from x to (x, 0) and (x, 1)."""
    base = importlib.import_module(library).experimental.FlatMapTransform

    class Split(base):
        max_fan_out = 2

        def flat_map(self, element):
            return [(element, 0), (element, 1)]

    return Split()


def draw(library):
    """Return a RandomMap to (element, a uniform number or None without rng)."""

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


@pytest.mark.claim(
    "DataLoader drops the remainder of a shard even with drop_remainder=False"
)
def test_first_shards_get_the_remainder():
    shards = [(0, 2), (1, 2)]
    theirs = [elements_of(THEIRS, shards=shard) for shard in shards]
    ours = [elements_of(OURS, shards=shard) for shard in shards]
    assert theirs == [[0, 1, 2], [4, 5, 6]]
    assert ours == [[0, 1, 2, 3], [4, 5, 6]]


def test_dropped_remainder_is_equal_in_both():
    for shard in [(0, 2, True), (1, 2, True)]:
        assert elements_of(OURS, shards=shard) == elements_of(THEIRS, shards=shard)


@pytest.mark.claim("A RandomMap after a FlatMap gets None instead of a generator")
def test_splits_of_a_record_share_its_generator():
    theirs = elements_of(THEIRS, [split_in_two(THEIRS), draw(THEIRS)], seed=5)
    ours = elements_of(OURS, [split_in_two(OURS), draw(OURS)], seed=5)
    assert [element for element, _ in ours] == [element for element, _ in theirs]
    assert {drawn for _, drawn in theirs} == {None}
    expected = []
    for index in range(7):
        rng = np.random.Generator(np.random.Philox(key=5 + index))
        expected += [rng.uniform(), rng.uniform()]
    assert [drawn for _, drawn in ours] == expected


@pytest.mark.claim("A RandomMap after a FlatMap gets None instead of a generator")
def test_batch_of_splits_has_its_own_generator():
    def drawn(library):
        batch = ready(library).Batch(1, batch_fn=lambda splits: splits[0])
        made = elements_of(
            library, [split_in_two(library), batch, draw(library)], seed=5
        )
        return [number for _, number in made]

    assert set(drawn(THEIRS)) == {None}
    assert len(set(drawn(OURS))) == 14


@pytest.mark.claim("MapWithIndex in a DataLoader raises TypeError")
def test_map_with_index_gets_the_global_index():
    with pytest.raises(TypeError, match="not callable"):
        elements_of(THEIRS, [number(THEIRS)], records=6, shards=(1, 2))
    ours = elements_of(OURS, [number(OURS)], records=6, shards=(1, 2))
    assert ours == [(1, 3), (3, 4), (5, 5)]


@pytest.mark.claim(
    "The state of an exhausted FlatMap loader is restored with next_index_in_buffer 0"
)
def test_finished_flat_map_state_survives_a_restore():
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
    """A source of the integers below 12 that records the keys read."""

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
    """Yields records in groups of three, in reverse."""

    def __call__(self, records):
        for one, two, three in zip(records, records, records, strict=True):
            yield from (three, two, one)


@pytest.mark.claim("Records that a legacy operation holds back are lost on resume")
@pytest.mark.claim(
    "A legacy Grain operation (a function that receives the iterator of all "
    "records) can hold records back, and no state contains these."
)
def test_records_held_by_legacy_operation_are_recomputed(caplog):
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
    assert warned[0].startswith("InReverse holds back records")


def loader_of(library, source, operations=(), sampler=None):
    """Return a loader of a source, in order or in the sampler's order."""
    legacy = ready(library)
    if sampler is None:
        sampler = legacy.SequentialSampler(len(source), legacy.NoSharding())
    return legacy.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=operations,
        shard_options=legacy.NoSharding(),
    )


class Damaged:
    """A source of the integers below 5 that raises KeyError for 2."""

    def __len__(self):
        return 5

    def __getitem__(self, key):
        if key == 2:
            raise KeyError(key)
        return key


@pytest.mark.claim("The note on an exception only says that frames were removed")
@pytest.mark.claim(
    "After an exception in the source, the position is one too low and the "
    "end raises IndexError; without threads, the same record is tried forever"
)
def test_failing_record_counts_as_consumed():
    found, seen, notes = {}, {}, {}
    for library in (THEIRS, OURS):
        iterator = iter(loader_of(library, Damaged()))
        assert [next(iterator), next(iterator)] == [0, 1]
        with pytest.raises(KeyError) as caught:
            next(iterator)
        notes[library] = " ".join(caught.value.__notes__)
        seen[library] = json.loads(iterator.get_state())["last_seen_indices"]["0"]
        assert [next(iterator), next(iterator)] == [3, 4]
        with pytest.raises((IndexError, StopIteration)) as ended:
            next(iterator)
        found[library] = type(ended.value)
    assert seen == {THEIRS: 1, OURS: 2}
    assert found == {THEIRS: IndexError, OURS: StopIteration}
    assert "Grain has removed its internal frames" in notes[THEIRS]
    assert "record 2" in notes[OURS]


@pytest.mark.claim("A batch of one element is a view of it")
def test_batch_of_one_element_is_a_copy():
    rows = {}
    for library in (THEIRS, OURS):
        rows[library] = [np.zeros(3)]
        batch = next(iter(loader_of(library, rows[library], [ready(library).Batch(1)])))
        batch[:] = 1
    assert rows[THEIRS][0].tolist() == [1, 1, 1]
    assert rows[OURS][0].tolist() == [0, 0, 0]


@pytest.mark.claim("Dicts with keys that cannot be sorted fail even without a Batch")
def test_unsortable_keys_fail_only_in_a_batch():
    elements = [{1: 1, "a": 2}] * 2
    for library, operations in [(THEIRS, []), (OURS, [ready(OURS).Batch(2)])]:
        with pytest.raises(ValueError, match="Comparator raised exception while sort"):
            list(loader_of(library, elements, operations))
    assert list(loader_of(OURS, elements)) == elements


@pytest.mark.claim(
    "An element that contains itself, or is nested too deeply, raises SystemError"
)
def of_itself():
    element = [1]
    element.append(element)
    return element


def very_deep():
    element = []
    for _ in range(20_000):
        element = [element]
    return element


@pytest.mark.parametrize("make", [of_itself, very_deep])
def test_too_deeply_nested_elements_pass_unbatched(make):
    element = make()
    with pytest.raises(SystemError):
        list(loader_of(THEIRS, [element]))
    (found,) = loader_of(OURS, [element])
    assert found is element
    with pytest.raises(RecursionError, match="while batching elements"):
        list(loader_of(OURS, [element, element], [ready(OURS).Batch(2)]))


class Names:
    """A source that returns the name it is asked for."""

    def __len__(self):
        return 2

    def __getitem__(self, name):
        return name


@pytest.mark.claim(
    "Record keys of type str are formatted with %, so a name with a percent "
    "sign changes or fails"
)
def test_names_with_percent_signs_reach_the_source():
    class Sampler(list):
        def __init__(self, library, names):
            make = ready(library).RecordMetadata
            super().__init__(make(i, name) for i, name in enumerate(names))

    def found(library, *names):
        return list(loader_of(library, Names(), sampler=Sampler(library, names)))

    assert found(THEIRS, "a%db") == ["a2b"]
    with pytest.raises(ValueError, match="incomplete format"):
        found(THEIRS, "100%")
    assert found(OURS, "a%db", "100%") == ["a%db", "100%"]


@pytest.mark.claim("MultiprocessingOptions(num_workers=-1) fails when it is used")
def test_negative_num_workers_is_refused_at_once():
    assert importlib.import_module(THEIRS).MultiprocessingOptions(num_workers=-1)
    with pytest.raises(ValueError, match="num_workers must be non-negative, got -1"):
        importlib.import_module(OURS).MultiprocessingOptions(num_workers=-1)


@pytest.mark.claim(
    "ArrayRecordDataSource is a subclass of the array-record package's class, "
    "which reads the files"
)
def test_array_record_source_does_not_use_the_package():
    theirs, ours = (ready(library).ArrayRecordDataSource for library in (THEIRS, OURS))
    assert "array_record" in str([base.__module__ for base in theirs.__mro__])
    assert "array_record." not in str([base.__module__ for base in ours.__mro__])
