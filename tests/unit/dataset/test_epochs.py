"""at_epoch selects an epoch of a chain; a repeated random epoch is logged."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as g
from gristmill import experimental
from gristmill.experimental import DatasetOptions, ExecutionTrackingMode

EPOCHS = 3
WORKER = g.MultiprocessingOptions(num_workers=1)


def noisy(x, rng):
    return (x, float(rng.random()))


def numbered(index, x):
    return (index, x)


STEPS = {
    "shuffle": lambda ds: ds.shuffle(),
    "random_map": lambda ds: ds.random_map(noisy),
    "map_with_index": lambda ds: ds.map_with_index(numbered),
    "filter": lambda ds: ds.filter(lambda x: "3" not in str(x)),
    "slice": lambda ds: ds[1:],
    "repeat": lambda ds: ds.repeat(2),
    "window": lambda ds: experimental.WindowShuffleMapDataset(
        ds, window_size=2, seed=1
    ),
    "mix": lambda ds: g.MapDataset.mix([ds, ds.shuffle()], [2, 1]),
    "zip": lambda ds: g.MapDataset.zip([ds, ds]),
    "concatenate": lambda ds: g.MapDataset.concatenate([ds, ds]),
    "shard": lambda ds: ds.shard(g.ShardOptions(0, 2), "wrap"),
}


def source(length=8):
    return g.MapDataset.range(length).seed(7)


def chain():
    return source().shuffle().random_map(noisy)


@given(
    length=st.integers(2, 20), names=st.permutations([*STEPS]), count=st.integers(1, 4)
)
def test_epochs_match_repeat(length, names, count):
    ds = source(length)
    for name in names[:count]:
        ds = STEPS[name](ds)
    repeated = list(ds.repeat(EPOCHS))
    assert [x for epoch in range(EPOCHS) for x in ds.at_epoch(epoch)] == repeated


def test_first_epoch_is_the_chain_itself():
    first, plain = iter(chain().at_epoch(0)), iter(chain())
    assert [next(first), next(first)] == [next(plain), next(plain)]
    assert first.get_state() == plain.get_state() == {"next_index": 2}
    assert list(first) == list(plain)


ITERATED = {
    "random_map": lambda ds: ds.random_map(noisy),
    "window": lambda ds: experimental.WindowShuffleIterDataset(
        ds, window_size=3, seed=5
    ),
    "pack": lambda ds: experimental.FirstFitPackIterDataset(
        ds.map(lambda x: {"x": np.full(3, x)}),
        length_struct={"x": 4},
        num_packing_bins=8,
    ).map(lambda row: row["x"].tolist()),
    "batch": lambda ds: ds.random_map(noisy).batch(3, batch_fn=tuple),
    "thread": lambda ds: experimental.ThreadPrefetchIterDataset(
        ds.random_map(noisy), prefetch_buffer_size=2
    ),
    "threads": lambda ds: experimental.multithread_prefetch(ds.random_map(noisy), 2, 1),
    "interleave": lambda ds: experimental.InterleaveIterDataset(
        [ds.random_map(noisy), ds], cycle_length=2
    ),
    "streams": lambda ds: ds.random_map(noisy).mp_prefetch(
        g.MultiprocessingOptions(num_workers=0), streams=2
    ),
    "mix": lambda ds: g.IterDataset.mix([ds.random_map(noisy), ds]),
    "zip": lambda ds: g.IterDataset.zip([ds.random_map(noisy), ds]),
    "options": lambda ds: ds.random_map(noisy).set_options(
        DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING)
    ),
}


def iterated(name):
    return ITERATED[name](source().to_iter_dataset())


@pytest.mark.parametrize("name", ITERATED)
def test_random_iter_steps_differ_between_epochs(name):
    ds = iterated(name)
    epochs = [list(ds.at_epoch(epoch)) for epoch in range(EPOCHS)]
    assert epochs[0] == list(ds)
    assert len({str(epoch) for epoch in epochs}) == EPOCHS
    assert epochs == [list(iterated(name).at_epoch(epoch)) for epoch in range(EPOCHS)]


@pytest.mark.parametrize("name", [*ITERATED])
@pytest.mark.parametrize("epoch", [0, 2])
def test_state_resumes_in_its_own_epoch(name, epoch):
    iterator = iter(iterated(name).at_epoch(epoch))
    next(iterator)
    state = iterator.get_state()
    expected = list(iterator)
    for other in (0, 1, 2):
        iterator = iter(iterated(name).at_epoch(other))
        iterator.set_state(state)
        assert iterator.get_state() == state
        assert list(iterator) == expected


@pytest.mark.multiprocess
def test_workers_follow_epoch_of_a_state():
    ds = source().shuffle().to_iter_dataset().random_map(noisy)
    expected = [list(ds.at_epoch(epoch)) for epoch in range(2)]
    ds = ds.mp_prefetch(WORKER)
    iterator = iter(ds.at_epoch(1))
    first, state = next(iterator), iterator.get_state()
    assert [first, *iterator] == expected[1]
    iterator = iter(ds.at_epoch(0))
    assert next(iterator) == expected[0][0]
    iterator.set_state(state)
    assert list(iterator) == expected[1][1:]


@pytest.mark.multiprocess
def test_workers_compute_steps_after_at_epoch():
    ds = source().shuffle().to_iter_dataset().random_map(noisy).at_epoch(2).batch(2)
    assert str([*ds.mp_prefetch(WORKER)]) == str([*ds])


def test_lazily_made_interleaved_datasets_get_the_epoch():
    parts = source(3).shuffle().map(lambda n: g.MapDataset.range(9).shuffle(seed=n)[:2])
    ds = experimental.InterleaveIterDataset(parts, cycle_length=2)
    made = experimental.InterleaveIterDataset(list(parts), cycle_length=2)
    assert list(ds.at_epoch(0)) == list(made)
    assert len({str([*ds.at_epoch(epoch)]) for epoch in range(4)}) == 4


def test_elastic_batches_use_the_epoch():
    ds = source().shuffle()
    elastic = experimental.ElasticIterator(ds, 4, g.ShardOptions(0, 1))
    for epoch in range(2):
        batches = [batch.tolist() for batch in elastic.at_epoch(epoch)]
        assert [*itertools.chain(*batches)] == list(ds.at_epoch(epoch))


def test_shards_of_interleaved_datasets_use_the_epoch():
    parts = [g.MapDataset.range(9 * i, 9 * i + 9).shuffle(seed=i) for i in range(3)]
    ds = experimental.InterleaveIterDataset(parts, cycle_length=2)
    elastic = experimental.ElasticIterator(ds, 0, g.ShardOptions(1, 2))
    for epoch in range(3):
        assert list(elastic.at_epoch(epoch)) == list(parts[1].at_epoch(epoch))


def test_listed_elements_use_the_epoch():
    ds = g.MapDataset.range(9).shuffle(seed=1)
    for epoch in range(3):
        whole = list(ds.at_epoch(epoch))
        assert list(ds[[3, 1]].at_epoch(epoch)) == [whole[3], whole[1]]


class Counted(g.IterDataset):
    """A user's source with set_epoch."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(g.MapDataset.range(3).map(lambda x: (self.epoch, x)))


def test_user_dataset_receives_the_epoch():
    ds = Counted().map(lambda x: x)
    assert list(ds.at_epoch(2)) == [(2, 0), (2, 1), (2, 2)]
    assert list(ds) == [(0, 0), (0, 1), (0, 2)]


def test_first_chosen_epoch_wins():
    ds = chain().at_epoch(1)
    assert list(ds.at_epoch(2)) == list(ds)


@pytest.mark.parametrize(
    ("epoch", "error", "text"),
    [(-1, ValueError, "at least 0, got -1"), (1.0, TypeError, "an int, got float")],
)
def test_invalid_epoch_is_rejected(epoch, error, text):
    for ds in (chain(), chain().to_iter_dataset()):
        with pytest.raises(error, match=text):
            ds.at_epoch(epoch)


@pytest.mark.parametrize("endless", [True, False])
def test_missing_epoch_is_rejected(endless):
    ds, epoch = (chain().repeat(), 1) if endless else (chain(), 2**62)
    with pytest.raises(ValueError, match=f"epoch {epoch} is too large"):
        iter(ds.at_epoch(epoch))
    assert next(iter(ds.at_epoch(0))) == next(iter(ds))


def test_state_of_another_chain_is_rejected():
    iterator = iter(chain().at_epoch(1))
    next(iterator)
    for state in ({"next_index": 9}, {"at_epoch": 1, "parent": {"next_index": 9}}):
        with pytest.raises(IndexError, match="out of range"):
            iterator.set_state(state)
    for state in ({"at_epoch": -1, "parent": {"next_index": 1}}, {"at_epoch": 1}, 3):
        with pytest.raises(g.errors.StateMismatch):
            iterator.set_state(state)
    assert iterator.get_state() == {"at_epoch": 1, "parent": {"next_index": 1}}


# Repeating an epoch.


def warned(caplog):
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return sum("dataset.at_epoch(epoch)" in text for text in found)


REPEATING = {
    "shuffle": lambda: source().shuffle(),
    "random_map": lambda: source().random_map(noisy),
    "in order": lambda: source().to_iter_dataset().random_map(noisy).batch(2),
    "to_iter_dataset": lambda: source().shuffle().to_iter_dataset(),
    "mix": lambda: g.MapDataset.mix([source(), source().shuffle()]),
    "interleave": lambda: experimental.InterleaveIterDataset(
        [chain(), chain()], cycle_length=2
    ),
    **{
        name: lambda name=name: iterated(name) for name in ("window", "pack", "streams")
    },
}
NOT_RANDOM = {
    "in order": lambda: source().map(str).to_iter_dataset().batch(2),
    "seeded": lambda: source().seed(3),
    "endless": lambda: chain().repeat(),
    "several epochs": lambda: chain().repeat(2).map(str),
    "repeated without end": lambda: experimental.RepeatIterDataset(
        chain().to_iter_dataset()
    ),
    "chosen": lambda: chain().at_epoch(0),
    "chosen before": lambda: chain().at_epoch(1).batch(2, batch_fn=tuple),
}


def take(ds, count=100):
    return [x for _, x in zip(range(count), ds, strict=False)]


@pytest.mark.parametrize("name", REPEATING)
def test_repeated_random_epoch_is_logged_once(name, caplog):
    ds = REPEATING[name]()
    assert take(ds) and warned(caplog) == 0
    assert take(ds) and warned(caplog) == 1
    assert take(ds) and warned(caplog) == 0


@pytest.mark.parametrize("name", NOT_RANDOM)
def test_repeated_deterministic_epoch_is_not_logged(name, caplog):
    ds = NOT_RANDOM[name]()
    for _ in range(3):
        take(ds, 8)
    assert warned(caplog) == 0


def test_chain_derived_from_iterated_chain_is_not_logged(caplog):
    ds = chain()
    take(ds)
    take(ds.map(str))
    take(ds.at_epoch(1))
    assert warned(caplog) == 0


def test_reading_only_the_first_element_does_not_count(caplog):
    ds = chain()
    for _ in range(3):
        next(iter(ds))
    take(ds)
    assert warned(caplog) == 0


def test_resumed_iterators_are_not_logged(caplog):
    ds = chain()
    for _ in range(3):
        iterator = iter(ds)
        iterator.set_state({"next_index": 0})
        take(iterator)
    assert warned(caplog) == 0
    take(ds)
    assert warned(caplog) == 1


def test_reports_do_not_count(caplog):
    ds = chain().to_iter_dataset()
    ds.report(seconds=0.01)
    iterator = iter(ds)
    take(iterator)
    iterator.report(verify=True, seconds=0.01)
    assert warned(caplog) == 0
