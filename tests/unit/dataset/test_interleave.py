"""Interleaving takes from a few datasets in turn."""

import gc
import threading

import pytest

import gristmill
from gristmill.errors import StateMismatch
from gristmill.experimental import (
    DatasetOptions,
    InterleaveIterDataset,
    WithOptionsIterDataset,
    get_next_index,
    set_next_index,
)
from support.twins import assert_twins, by_json, grain
from support.waiting import started_since, wait_until_ended


def parts(lib, *lengths, iterated=False):
    found = [lib.MapDataset.range(10 * i, 10 * i + n) for i, n in enumerate(lengths)]
    return [part.to_iter_dataset() for part in found] if iterated else found


@pytest.mark.parametrize("iterated", [True, False])
@pytest.mark.parametrize(
    ("cycle", "expected"),
    [
        (1, [0, 1, 10, 11, 12, 13, 14, 20, 21, 22, 30]),
        (2, [0, 10, 1, 11, 12, 20, 13, 21, 14, 22, 30]),
        (3, [0, 10, 20, 1, 11, 21, 12, 22, 30, 13, 14]),
        (9, [0, 10, 20, 30, 1, 11, 21, 12, 22, 13, 14]),
    ],
)
def test_orders_match_grain(cycle, expected, iterated):
    elements = assert_twins(
        lambda lib: lib.experimental.InterleaveIterDataset(
            parts(lib, 2, 5, 3, 1, iterated=iterated), cycle_length=cycle
        )
    )
    assert elements == expected


@pytest.mark.parametrize("cycle", [1, 3])
def test_filtered_parts_match_grain(cycle):
    def make(lib):
        datasets = [
            part.filter(lambda x: x % 10 != 2 and x % 10 < 4).batch(2)
            for part in parts(lib, 3, 6, 0, 9, iterated=True)
        ]
        return lib.experimental.InterleaveIterDataset(
            datasets, cycle_length=cycle, iter_buffer_size=2
        )

    assert_twins(make)


def test_dataset_of_datasets_is_opened_lazily():
    opened = []

    def open_part(i):
        opened.append(i)
        return gristmill.MapDataset.range(10 * i, 10 * i + 2).to_iter_dataset()

    datasets = gristmill.MapDataset.range(50).map(open_part)
    iterator = iter(InterleaveIterDataset(datasets, cycle_length=2))
    assert [next(iterator) for _ in range(6)] == [0, 10, 1, 11, 20, 30]
    assert max(opened) <= 4
    assert_twins(
        lambda lib: lib.experimental.InterleaveIterDataset(
            lib.MapDataset.range(5)
            .shuffle(seed=2)
            .map(lambda i: lib.MapDataset.range(10 * i, 10 * i + i)),
            cycle_length=2,
        )
    )


def test_slow_datasets_are_opened_by_threads():
    threads = set()
    blocked = threading.Event()

    def open_part(i):
        threads.add(threading.current_thread().name)
        blocked.wait(0.01)
        return gristmill.MapDataset.range(i, i + 1).to_iter_dataset()

    datasets = gristmill.MapDataset.range(12).map(open_part)
    ds = InterleaveIterDataset(
        datasets, cycle_length=2, num_make_iter_threads=3, make_iter_buffer_size=3
    )
    assert list(ds) == list(range(12))
    assert any(name.startswith("gristmill-read") for name in threads)


def test_absent_datasets_are_skipped():
    datasets = gristmill.MapDataset.range(6).filter(lambda i: i % 2 == 1)
    datasets = datasets.map(lambda i: gristmill.MapDataset.range(10 * i, 10 * i + 2))
    ds = InterleaveIterDataset(datasets, cycle_length=2)
    elements = list(ds)
    assert elements == [10, 30, 11, 31, 50, 51]
    iterator = iter(ds)
    for place in range(len(elements)):
        resumed = iter(ds)
        resumed.set_state(by_json(iterator.get_state()))
        assert list(resumed) == elements[place:]
        next(iterator)


def test_error_uses_only_its_turn():
    def fail_at_eleven(x):
        if x == 11:
            raise RuntimeError(x)
        return x

    datasets = [
        part.map(fail_at_eleven) for part in parts(gristmill, 3, 3, 3, iterated=True)
    ]
    iterator = iter(InterleaveIterDataset(datasets, cycle_length=3))
    found = []
    for _ in range(9):
        try:
            found.append(next(iterator))
        except RuntimeError as error:
            found.append(str(error))
    assert found == [0, 10, 20, 1, "11", 21, 2, 12, 22]


def test_unopenable_dataset_drops_no_other():
    def open_part(i):
        if i == 1:
            raise RuntimeError(i)
        return gristmill.MapDataset.range(10 * i, 10 * i + 2)

    datasets = gristmill.MapDataset.range(4).map(open_part)
    iterator = iter(InterleaveIterDataset(datasets, cycle_length=2))
    assert next(iterator) == 0
    with pytest.raises(RuntimeError):
        next(iterator)
    assert list(iterator) == [20, 1, 21, 30, 31]


def test_states_of_grain_load_after_json():
    def make(lib):
        return lib.experimental.InterleaveIterDataset(
            parts(lib, 3, 2, 4, iterated=True), cycle_length=2
        )

    iterator = iter(make(grain()))
    taken = [next(iterator) for _ in range(4)]
    resumed = iter(make(gristmill))
    resumed.set_state(by_json(iterator.get_state()))
    assert taken + list(resumed) == list(make(gristmill))


@pytest.mark.claim(
    "InterleaveIterDataset.set_state keeps and modifies the caller's dict; "
    "cycle_length=0 raises IndexError"
)
def test_restoring_does_not_change_the_state():
    ds = InterleaveIterDataset(parts(gristmill, 2, 2, 2, 2), cycle_length=2)
    iterator = iter(ds)
    next(iterator)
    state = iterator.get_state()
    before = by_json(state)
    for _ in range(2):
        resumed = iter(ds)
        resumed.set_state(state)
        assert len(list(resumed)) == 7
        assert by_json(state) == before


def test_future_states_are_used():
    ds = InterleaveIterDataset(parts(gristmill, 2, 4), cycle_length=1)
    iterator = iter(ds)
    state = iterator.get_state()
    state["future_states"] = {"1": {"next_index": 3}}
    iterator.set_state(state)
    assert list(iterator) == [0, 1, 13]


def test_state_of_another_cycle_length_is_rejected():
    state = iter(
        InterleaveIterDataset(parts(gristmill, 2, 2), cycle_length=2)
    ).get_state()
    iterator = iter(InterleaveIterDataset(parts(gristmill, 2, 2), cycle_length=1))
    with pytest.raises(StateMismatch, match="2 open datasets, expected 1"):
        iterator.set_state(state)


@pytest.mark.claim(
    "InterleaveIterDataset.set_state keeps and modifies the caller's dict; "
    "cycle_length=0 raises IndexError"
)
def test_cycle_length_must_be_positive():
    with pytest.raises(ValueError, match=r"cycle_length must be positive\. Got 0"):
        InterleaveIterDataset(parts(gristmill, 2), cycle_length=0)


def test_options_set_after_apply_to_the_parts():
    nothing = [
        gristmill.MapDataset.range(1000).to_iter_dataset().filter(lambda x: False)
    ]
    ds = InterleaveIterDataset(nothing, cycle_length=1)
    ds = WithOptionsIterDataset(ds, DatasetOptions(filter_raise_threshold_ratio=0.5))
    with pytest.raises(ValueError, match=r"skipped 100.00 %"):
        next(iter(ds))


def test_slices_divide_the_datasets():
    ds = InterleaveIterDataset(parts(gristmill, 2, 2, 2), cycle_length=2)
    ds.set_slice(slice(1, None, 2))
    assert list(ds) == [10, 11]
    ds.set_slice(slice(0, 0))
    assert list(ds) == []


def test_single_dataset_has_next_index():
    ds = InterleaveIterDataset(parts(gristmill, 5), cycle_length=1)
    iterator = iter(ds)
    assert get_next_index(iterator) == 0
    set_next_index(iterator, 3)
    assert (next(iterator), get_next_index(iterator), list(iterator)) == (3, 4, [4])
    set_next_index(iterator, 1)
    assert next(iterator) == 1


@pytest.mark.parametrize("name", ["get_next_index", "set_next_index"])
def test_next_index_of_several_datasets_is_rejected(name):
    texts = []
    for lib in (gristmill, grain()):
        call = getattr(lib.experimental, name)
        ds = lib.experimental.InterleaveIterDataset(parts(lib, 5, 5), cycle_length=1)
        with pytest.raises(NotImplementedError) as raised:
            call(iter(ds), *([1] if name == "set_next_index" else []))
        texts.append(str(raised.value))
    assert texts[0] == f"{texts[1]} There are 2."


def test_closing_ends_all_threads():
    # Collecting Grain's iterators of other tests waits for their threads. Inside the
    # listing of threads, that would be a deadlock.
    gc.collect()
    before = set(threading.enumerate())

    def make():
        datasets = [part.map(abs) for part in parts(gristmill, 9, 9, 9, iterated=True)]
        iterator = iter(
            InterleaveIterDataset(datasets, cycle_length=3, iter_buffer_size=2)
        )
        next(iterator)
        assert started_since(before)
        return iterator

    iterator = make()
    iterator.close()
    wait_until_ended(started_since(before))
    with pytest.raises(ValueError, match="Trying to advance a closed iterator"):
        next(iterator)
    gc.disable()
    try:
        iterator = make()
        del iterator
        wait_until_ended(started_since(before))
    finally:
        gc.enable()


def test_prefetch_starts_on_a_fresh_iterator():
    seen = threading.Event()
    datasets = [
        part.map(lambda x: seen.set() or x)
        for part in parts(gristmill, 3, iterated=True)
    ]
    iterator = iter(InterleaveIterDataset(datasets, cycle_length=1))
    iterator.start_prefetch()
    assert seen.wait(10)
    assert list(iterator) == [0, 1, 2]


def test_names():
    ds = InterleaveIterDataset(parts(gristmill, 2, 2, 2), cycle_length=2)
    assert f"{ds}" == "InterleaveIterDataset([3 datasets], cycle_length=2)"
    assert str(iter(ds)) == "InterleaveDatasetIterator([3 datasets], cycle_length=2)"
