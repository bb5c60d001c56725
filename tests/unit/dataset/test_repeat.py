"""Repeating iterates over a dataset several times with the same elements."""

import itertools
import os

import pytest

import gristmill
from gristmill.experimental import InterleaveIterDataset, RepeatIterDataset
from support.twins import assert_resumes, assert_twins, by_json, grain, run


def numbers(lib, n):
    return lib.MapDataset.range(n).shuffle(seed=3).to_iter_dataset()


@pytest.mark.parametrize("epochs", [1, 3, None])
def test_repeats_match_grain(epochs):
    def make(lib):
        ds = numbers(lib, 5).random_map(lambda x, rng: (x, rng.integers(9)), seed=2)
        return lib.experimental.RepeatIterDataset(
            ds.filter(lambda x: x[0] != 2), epochs
        )

    elements = assert_twins(make, most=17)
    assert elements[:4] == elements[4:8] or epochs == 1


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_num_epochs_must_be_positive(library):
    with pytest.raises(ValueError, match="num_epochs must be positive, but got 0"):
        library().experimental.RepeatIterDataset(numbers(library(), 3), 0)


def test_empty_dataset_repeats_only_finitely():
    nothing = numbers(gristmill, 5).filter(lambda x: False)
    assert list(RepeatIterDataset(nothing, 3)) == []
    with pytest.raises(ValueError, match="without elements forever"):
        next(iter(RepeatIterDataset(nothing)))


def test_restored_end_of_epoch_does_not_count_as_empty():
    repeated = RepeatIterDataset(numbers(gristmill, 3))
    iterator = iter(repeated)
    first = list(itertools.islice(iterator, 3))
    resumed = iter(repeated)
    resumed.set_state(iterator.get_state())
    assert list(itertools.islice(resumed, 3)) == first


@pytest.mark.claim(
    "In the state of a RepeatIterDataset over an interleave, every later "
    "epoch is exhausted"
)
def test_every_epoch_of_an_interleave_can_be_resumed():
    """Grain loses elements from the second epoch on."""
    parts = [
        gristmill.MapDataset.range(10 * i, 10 * i + n) for i, n in enumerate([2, 3])
    ]
    ds = RepeatIterDataset(InterleaveIterDataset(parts, cycle_length=2), 3)
    elements, states, _ = run(iter(ds))
    assert elements == 3 * [0, 10, 1, 11, 12]
    for place, state in enumerate(states[:-1]):
        assert_resumes(ds, state, elements[place:], 20)


def process_of(x):
    return (x, os.getpid())


@pytest.mark.multiprocess
def test_workers_are_reused_across_epochs():
    workers = gristmill.MultiprocessingOptions(num_workers=2)
    ds = numbers(gristmill, 6).map(process_of).mp_prefetch(workers)
    found = list(RepeatIterDataset(ds, 3))
    assert [x for x, _ in found] == 3 * [x for x, _ in found[:6]]
    processes = {process for _, process in found}
    # New workers in each epoch would be at least three processes. One of the two
    # reused workers may start too late to compute anything.
    assert len(processes) <= 2
    assert os.getpid() not in processes


def test_states_are_small_json():
    iterator = iter(RepeatIterDataset(numbers(gristmill, 3)))
    next(iterator)
    assert by_json(iterator.get_state()) == {"parent": {"next_index": 1}, "epoch": 0}


def test_names():
    ds = RepeatIterDataset(numbers(gristmill, 3), 2)
    assert f"{ds}" == "RepeatIterDataset(num_epochs=2)"
    assert str(iter(ds)) == "_RepeatDatasetIterator(num_epochs=2)"
