"""Tests of DataLoader.set_epoch, and of the warning about repeated epochs."""

import copy
import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as g
from gristmill.sharding import ShardOptions

EPOCHS = 3


class Noisy(g.transforms.RandomMap):
    def random_map(self, x, rng):
        return (x, None if rng is None else float(rng.random()))


class Numbered(g.transforms.MapWithIndex):
    def map_with_index(self, index, x):
        return (index, x)


class SomeOf(g.transforms.Filter):
    def filter(self, x):
        return "3" not in str(x)


class Twice(g.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, x):
        return [x, x]


# Functions that make a sampler of (records, shard, epochs).
SAMPLERS = {
    "index": lambda n, shard, epochs: g.IndexSampler(n, shard, False, epochs, 5),
    "shuffled": lambda n, shard, epochs: g.IndexSampler(n, shard, True, epochs, 5),
    "without draws": lambda n, shard, epochs: g.IndexSampler(n, shard, False, epochs),
    "distributed": lambda n, shard, epochs: g.samplers.DistributedSampler(
        n, shard, 2, True, epochs, 5, "wrap"
    ),
    "groups": lambda n, shard, epochs: g.samplers.GroupShuffleSampler(
        np.diff([*range(0, n, 4), n]),
        window=2,
        shard_options=shard,
        num_epochs=epochs,
        seed=5,
    ),
    "groups, one order": lambda n, shard, epochs: g.samplers.GroupShuffleSampler(
        [n], shard_options=shard, num_epochs=epochs, seed=5, reshuffle=False
    ),
}


def loader(sampler, *, operations=(), workers=0, **more):
    return g.DataLoader(
        data_source=range(getattr(sampler, "num_records", 5)),
        sampler=sampler,
        operations=operations,
        worker_count=workers,
        **more,
    )


def in_epoch(made, epoch):
    made.set_epoch(epoch)
    return made


def shuffled(epochs=1, **more):
    sampler = g.IndexSampler(8, shuffle=True, num_epochs=epochs, seed=3)
    return loader(sampler, operations=[Noisy()], **more)


@given(
    name=st.sampled_from([*SAMPLERS]),
    records=st.integers(4, 30),
    shard=st.sampled_from([(0, 1), (0, 2), (2, 3)]),
    drop_remainder=st.booleans(),
    steps=st.permutations([Noisy, Numbered, SomeOf, Twice]),
    count=st.integers(0, 3),
)
@settings(max_examples=60)
def test_epochs_match_multi_epoch_sampler(
    name, records, shard, drop_remainder, steps, count
):
    shard = ShardOptions(*shard, drop_remainder=drop_remainder)
    if not drop_remainder:
        # Otherwise shards get unequal parts of the sampler's last epoch.
        records -= records % shard.shard_count
    operations = [step() for step in steps[:count]]
    make = SAMPLERS[name]
    whole = list(loader(make(records, shard, EPOCHS), operations=operations))
    one = loader(make(records, shard, 1), operations=operations)
    parts = [list(in_epoch(one, epoch)) for epoch in range(EPOCHS)]
    assert [*itertools.chain(*parts)] == whole


@given(name=st.sampled_from([*SAMPLERS]), streams=st.integers(1, 3))
def test_batched_epochs_match_multi_epoch_sampler(name, streams):
    how = {"operations": [Noisy(), g.Batch(2)], "streams": streams}
    make = SAMPLERS[name]
    whole = list(loader(make(12, g.NoSharding(), EPOCHS), **how))
    one = loader(make(12, g.NoSharding(), 1), **how)
    parts = [batch for epoch in range(EPOCHS) for batch in in_epoch(one, epoch)]
    assert str(parts) == str(whole)


@given(records=st.integers(3, 30), shards=st.integers(2, 3), epoch=st.integers(0, 3))
def test_shards_have_each_record_once_in_every_epoch(records, shards, epoch):
    def elements(shard, **of_loader):
        sampler = g.IndexSampler(records, shard, True, 1, 5)
        return list(in_epoch(loader(sampler, **of_loader), epoch))

    parts = [ShardOptions(shard, shards) for shard in range(shards)]
    by_sampler = [elements(part) for part in parts]
    by_loader = [elements(g.NoSharding(), shard_options=part) for part in parts]
    assert sorted([*itertools.chain(*by_sampler)]) == [*range(records)]
    assert sorted([*itertools.chain(*by_loader)]) == [*range(records)]


def test_multi_epoch_sampler_continues_after_set_epoch():
    whole = list(shuffled(4))
    assert [x for e in range(2) for x in in_epoch(shuffled(2), e)] == whole


def test_endless_loader_begins_with_its_epoch():
    endless = iter(in_epoch(shuffled(None), 2))
    assert [next(endless) for _ in range(16)] == list(shuffled(4))[16:]


def test_sequential_epochs_differ_in_random_draws():
    made = loader(g.SequentialSampler(8, seed=3), operations=[Noisy()])
    sampler = g.IndexSampler(8, num_epochs=3, seed=3)
    whole = list(loader(sampler, operations=[Noisy()]))
    assert [x for e in range(3) for x in in_epoch(made, e)] == whole


@pytest.mark.multiprocess
def test_epochs_are_the_same_with_any_number_of_workers():
    batched = [Noisy(), g.Batch(2)]
    how = {"operations": batched, "streams": 2}
    sampler = g.IndexSampler(8, shuffle=True, num_epochs=1, seed=3)
    expected = str(list(in_epoch(loader(sampler, **how), 1)))
    for workers in (1, 2):
        made = in_epoch(loader(sampler, workers=workers, **how), 1)
        assert str(list(made)) == expected


class Turning:
    """A user-defined sampler whose order starts at another record in each epoch."""

    seed = None
    first = 0

    def __len__(self):
        return 5

    def __getitem__(self, index):
        if index >= 5:
            raise IndexError
        key = (index + self.first) % 5
        return g.RecordMetadata(index=index, record_key=key)

    def set_epoch(self, epoch):
        self.first = epoch


def test_user_sampler_receives_epoch():
    sampler = Turning()
    made = loader(sampler, shard_options=g.NoSharding())
    before = iter(made)
    assert list(in_epoch(made, 2)) == [2, 3, 4, 0, 1]
    assert list(before) == [0, 1, 2, 3, 4]
    assert sampler.first == 0


class Unknowing:
    def __getitem__(self, index):
        if index >= 5:
            raise IndexError
        return g.RecordMetadata(index=index, record_key=index)


def test_sampler_without_set_epoch_allows_only_epoch_0():
    made = loader(Unknowing(), shard_options=g.NoSharding())
    made.set_epoch(0)
    with pytest.raises(TypeError, match=r"set_epoch.* Unknowing without it"):
        made.set_epoch(1)
    assert len(list(made)) == 5


@pytest.mark.parametrize(
    ("epoch", "error", "text"),
    [
        (-1, ValueError, "epoch must be at least 0, got -1"),
        (1.0, TypeError, "epoch must be an int, got float"),
        (True, TypeError, "epoch must be an int, got bool"),
        (2**62, OverflowError, "must be below"),
    ],
)
def test_wrong_epoch_is_refused_and_changes_nothing(epoch, error, text):
    made = in_epoch(shuffled(), 1)
    expected = list(made)
    with pytest.raises(error, match=text):
        made.set_epoch(epoch)
    assert list(made) == expected


def test_numpy_epoch_is_saved_as_int():
    iterator = iter(in_epoch(shuffled(), np.int64(1)))
    assert json.loads(iterator.get_state())["gristmill"]["epoch"] == 1


# States


def test_first_epoch_state_has_no_epoch():
    iterator = iter(in_epoch(shuffled(), 0))
    next(iterator)
    state = json.loads(iterator.get_state())
    assert "gristmill" not in state
    assert state["last_seen_indices"] == {"0": 0}


@pytest.mark.parametrize("epoch", range(3))
@pytest.mark.parametrize("operations", [[Noisy()], [Noisy(), Twice()]], ids=len)
def test_state_resumes_in_its_epoch_from_any_epoch(epoch, operations):
    sampler = g.IndexSampler(8, shuffle=True, num_epochs=1, seed=3)
    made = loader(sampler, operations=operations, streams=2)
    iterator = iter(in_epoch(made, epoch))
    next(iterator)
    state = iterator.get_state()
    expected = list(iterator)
    for other in range(3):
        iterator = iter(in_epoch(copy.copy(made), other))
        iterator.set_state(state)
        assert iterator.get_state() == state
        assert list(iterator) == expected
    assert made.replay(state) == expected[0]


@pytest.mark.multiprocess
def test_state_moves_workers_to_its_epoch():
    iterator = iter(in_epoch(shuffled(streams=1), 1))
    next(iterator)
    state, expected = iterator.get_state(), list(iterator)
    iterator = iter(shuffled(streams=1, workers=1))
    next(iterator)
    iterator.set_state(state)
    assert list(iterator) == expected


def test_later_epoch_state_has_format_2():
    state = json.loads(iter(in_epoch(shuffled(), 1)).get_state())
    # Such releases refuse any format except 1.
    assert state["gristmill"] == {"format": 2, "epoch": 1}


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", True])
def test_state_with_invalid_epoch_is_refused(epoch):
    iterator = iter(in_epoch(shuffled(), 1))
    state = json.loads(iterator.get_state())
    state["gristmill"]["epoch"] = epoch
    with pytest.raises(g.errors.StateMismatch, match="'epoch' of the checkpoint"):
        iterator.set_state(json.dumps(state).encode())


def test_pickled_loader_keeps_its_epoch():
    made = in_epoch(shuffled(), 2)
    assert list(pickle.loads(pickle.dumps(made))) == list(made)


# The warning about a repeated epoch


def warned(caplog):
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return sum("Call loader.set_epoch(epoch)" in text for text in found)


def sequential(operations=(), seed=None):
    return loader(g.SequentialSampler(8, seed=seed), operations=operations)


REPEATING = {
    "shuffled": lambda: shuffled(),
    "drawing": lambda: sequential([Noisy()], seed=1),
    "groups": lambda: loader(SAMPLERS["groups"](8, g.NoSharding(), 1)),
    "distributed": lambda: loader(SAMPLERS["distributed"](8, g.NoSharding(), 1)),
    "of its own": lambda: loader(Turning(), shard_options=g.NoSharding()),
    "load": lambda: g.load(range(8), shuffle=True, seed=1, num_epochs=1),
}
NOT_RANDOM = {
    "in order": sequential,
    "without a seed": lambda: sequential([Noisy()]),
    "with a seed for nothing": lambda: sequential([Numbered()], seed=1),
    "groups, one order": lambda: loader(
        SAMPLERS["groups, one order"](8, g.NoSharding(), 1)
    ),
    "endless": lambda: shuffled(None),
    "several epochs": lambda: shuffled(2),
    "of its own": lambda: loader(Unknowing(), shard_options=g.NoSharding()),
}


def take(iterator, count=None):
    return [x for _, x in zip(range(count or 100), iterator, strict=False)]


@pytest.mark.parametrize("name", REPEATING)
def test_repeated_random_epoch_is_logged_once(name, caplog):
    made = REPEATING[name]()
    assert take(made) and warned(caplog) == 0
    assert take(made) and warned(caplog) == 1
    assert take(made) and warned(caplog) == 0


@pytest.mark.parametrize("name", NOT_RANDOM)
def test_repeated_epoch_without_draws_is_not_logged(name, caplog):
    made = NOT_RANDOM[name]()
    for _ in range(3):
        take(made, 8)
    assert warned(caplog) == 0


def test_partial_epoch_counts_as_repeated(caplog):
    made = shuffled()
    take(made, 3)
    take(made, 3)
    assert warned(caplog) == 1


def test_reading_one_element_does_not_count(caplog):
    made = shuffled()
    for _ in range(3):
        next(iter(made))
    take(made)
    assert warned(caplog) == 0


def test_epochs_chosen_by_set_epoch_are_not_logged(caplog):
    made = shuffled()
    for epoch in (0, 1, 1, 0):
        take(in_epoch(made, epoch))
    assert warned(caplog) == 0
    take(made)
    assert warned(caplog) == 1


def test_restored_iterators_are_not_logged(caplog):
    made = shuffled()
    iterator = iter(made)
    state = iterator.get_state()
    for _ in range(3):
        iterator = iter(made)
        iterator.set_state(state)
        take(iterator)
        made.replay(state)
    assert warned(caplog) == 0
    take(made)
    assert warned(caplog) == 1


def test_reports_do_not_count(caplog):
    made = shuffled()
    made.report(seconds=0.01)
    take(made)
    made.report(seconds=0.01, verify=True)
    assert warned(caplog) == 0


def test_repeat_check_ends_after_second_element():
    iterator = iter(shuffled())
    assert iterator._watch.pass_start is not None
    take(iterator, 2)
    assert iterator._watch.pass_start is None
