"""Chains skip elements that fail, or substitute others for them."""

import gc
import json
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as grain
from gristmill.errors import TooManyErrors

COUNT = 30


class Refusing(grain.transforms.Map):
    """Returns an element unless it is bad."""

    def __init__(self, bad):
        self.bad = frozenset(bad)

    def map(self, element):
        if element in self.bad:
            raise ValueError(f"{element} is bad")
        return element


class RefusingPairs(grain.experimental.FlatMapTransform):
    """Returns an element twice unless it is bad."""

    max_fan_out = 2

    def __init__(self, bad):
        self.bad = frozenset(bad)

    def flat_map(self, element):
        if element in self.bad:
            raise ValueError(f"{element} is bad")
        return [element, element]


class RefusingBlocks(grain.transforms.BlockMap):
    """Returns elements unless one of them is bad."""

    block_size = 4

    def __init__(self, bad):
        self.bad = frozenset(bad)

    def block_map(self, elements):
        for element in elements:
            if element in self.bad:
                raise ValueError(f"{element} is bad")
        return elements


class Source:
    """Serves integers, but fails for the bad ones."""

    def __init__(self, bad):
        self.bad = frozenset(bad)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if index in self.bad:
            raise OSError(f"{index} cannot be read")
        return index


class Filter(Refusing, grain.transforms.Filter):
    def filter(self, element):
        return Refusing.map(self, element) is not None


class WithIndex(grain.transforms.MapWithIndex):
    def __init__(self, bad):
        self.bad = frozenset(bad)

    def map_with_index(self, index, element):
        return Refusing(self.bad).map(element)


def numbers(source=None):
    return grain.MapDataset.source(range(COUNT) if source is None else source)


# Chains without `on_error`, whose elements in `bad` fail.
CHAINS = {
    "read": lambda bad: numbers(Source(bad)).to_iter_dataset(),
    "read shuffled": lambda bad: numbers(Source(bad)).shuffle(1).to_iter_dataset(),
    "map": lambda bad: numbers().map(Refusing(bad)).to_iter_dataset(),
    "block map": lambda bad: numbers().block_map(RefusingBlocks(bad)).to_iter_dataset(),
    "map behind": lambda bad: numbers().to_iter_dataset().map(Refusing(bad)),
    "index": lambda bad: numbers().to_iter_dataset().map_with_index(WithIndex(bad)),
    "filter": lambda bad: numbers().filter(Filter(bad)).to_iter_dataset(),
    "filter behind": lambda bad: numbers().to_iter_dataset().filter(Filter(bad)),
    "block behind": lambda bad: numbers().to_iter_dataset().pipe(blocks, bad),
    "splits": lambda bad: grain.experimental.FlatMapIterDataset(
        numbers().to_iter_dataset(), RefusingPairs(bad)
    ),
    "mixed": lambda bad: grain.IterDataset.mix(
        [
            numbers()[:15].map(Refusing(bad)).to_iter_dataset(),
            numbers()[15:].to_iter_dataset().map(Refusing(bad)),
        ]
    ),
    "threads": lambda bad: grain.experimental.ThreadPrefetchIterDataset(
        numbers().map(Refusing(bad)).to_iter_dataset(), prefetch_buffer_size=3
    ),
}


def blocks(ds, bad):
    return ds.block_map(RefusingBlocks(bad))


def all_of(iterator):
    """Return the elements of an iterator, without those for which it raises."""
    found = []
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except (ValueError, OSError):
            continue


@pytest.mark.parametrize("name", CHAINS)
@given(bad=st.sets(st.integers(0, COUNT - 1)))
def test_failing_elements_are_skipped(name, bad):
    ds = CHAINS[name](bad)
    expected = all_of(iter(ds))
    iterator = iter(ds.on_error("skip"))
    assert list(iterator) == expected
    assert iterator.errors.count == len(bad)
    assert {record.error for record in iterator.errors.last} <= {
        "ValueError",
        "OSError",
    }
    assert {int(record.message.split()[0]) for record in iterator.errors.last} <= bad


@pytest.mark.parametrize("name", CHAINS)
def test_chain_resumes_at_each_element(name):
    ds = CHAINS[name]({0, 3, 4, 17, 29}).on_error("skip")
    grain.experimental.assert_equal_output_after_checkpoint(ds)


@pytest.mark.parametrize("name", CHAINS)
def test_states_do_not_depend_on_on_error(name):
    ds = CHAINS[name]({9, 10})
    plain, tolerant = iter(ds), iter(ds.on_error("skip"))
    for _ in range(5):
        assert next(plain) == next(tolerant)
    assert plain.get_state() == tolerant.get_state()
    plain.set_state(tolerant.get_state())
    assert next(plain) == next(tolerant)


@pytest.mark.multiprocess
@pytest.mark.parametrize("name", ["read shuffled", "map", "map behind", "splits"])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_skip_the_same_elements(name, workers):
    bad = {0, 1, 7, 8, 9, 21, 29}
    ds = CHAINS[name](bad).on_error("skip").batch(3)
    options = grain.MultiprocessingOptions(num_workers=workers)
    expected = iter(ds.mp_prefetch(grain.MultiprocessingOptions(0), streams=2))
    iterator = iter(ds.mp_prefetch(options, streams=2))
    found = [batch.tolist() for batch in iterator]
    assert found == [batch.tolist() for batch in expected]
    assert set(np.concatenate(found).tolist()) == {*range(COUNT)} - bad
    assert iterator.errors.count == len(bad)
    assert iterator.errors == expected.errors


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_worker_outputs_continue_after_too_many_errors(workers):
    ds = numbers().map(Refusing({4, 6})).to_iter_dataset()
    ds = ds.on_error("skip", max_errors=1).batch(5)
    options = grain.MultiprocessingOptions(num_workers=workers)
    iterator = iter(ds.mp_prefetch(options, streams=1))
    assert next(iterator).tolist() == [0, 1, 2, 3, 5]
    state = iterator.get_state()
    with pytest.raises(TooManyErrors, match=r"max_errors=1 .* 2 records failed"):
        next(iterator)
    assert iterator.get_state() == state
    assert next(iterator).tolist() == [7, 8, 9, 10, 11]
    assert iterator.errors.count == 2


def test_too_many_errors_raise_in_place_of_elements():
    ds = numbers().map(Refusing({1, 3, 5})).to_iter_dataset()
    iterator = iter(ds.on_error("skip", max_errors=1))
    assert [next(iterator), next(iterator)] == [0, 2]
    for following in (4, 6):
        with pytest.raises(TooManyErrors, match="max_errors=1"):
            next(iterator)
        assert next(iterator) == following
    assert iterator.errors.count == 3


@given(bad=st.sets(st.integers(0, COUNT - 1), max_size=COUNT - 1))
def test_failing_elements_are_substituted(bad):
    ds = numbers().map(Refusing(bad)).to_iter_dataset().map(lambda x: x)
    iterator = iter(ds.on_error("substitute"))
    found = list(iterator)
    assert len(found) == COUNT == len(ds.on_error("substitute"))
    for index, element in enumerate(found):
        if index not in bad:
            assert element == index
        else:
            assert element not in bad
    assert iterator.errors.count == len(bad)
    for record in iterator.errors.last:
        assert record.index in bad
        assert record.substitute == found[record.index]


def drawing(bad):
    """Return pairs of a number and a random draw of its index."""
    ds = numbers().seed(3).map(Refusing(bad))
    return ds.random_map(lambda number, rng: (number, int(rng.integers(1000))))


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_substitutes_resume_and_do_not_depend_on_workers(workers):
    ds = drawing({2, 3, 11})
    ds = ds.to_iter_dataset().on_error("substitute")
    options = grain.MultiprocessingOptions(num_workers=workers)
    made = ds.mp_prefetch(options, streams=2)
    expected = list(ds.mp_prefetch(grain.MultiprocessingOptions(0), streams=2))
    assert list(made) == expected
    plain = dict(drawing(set()))
    assert dict(expected).items() <= plain.items()
    iterator = iter(made)
    for _ in range(7):
        next(iterator)
    state = iterator.get_state()
    iterator = iter(made)
    iterator.set_state(state)
    assert list(iterator) == expected[7:]


@pytest.mark.parametrize(
    "behind",
    [
        lambda ds: ds.filter(Filter({1})),
        lambda ds: ds.map_with_index(WithIndex({1})),
        lambda ds: grain.experimental.LimitIterDataset(ds, 10),
    ],
)
def test_elements_without_an_index_are_not_substituted(behind):
    ds = behind(numbers().map(Refusing({3})).to_iter_dataset())
    with pytest.raises(ValueError, match="needs elements that have an index"):
        ds.on_error("substitute")


def test_substitute_is_recorded_by_key():
    ds = numbers().shuffle(1).map(Refusing({4, 9})).to_iter_dataset()
    iterator = iter(ds.on_error("substitute"))
    found = list(iterator)
    for record in iterator.errors.last:
        assert record.substitute == found[record.index]


def test_bad_records_are_written_to_the_quarantine(tmp_path):
    path = tmp_path / "bad.jsonl"
    ds = numbers(Source({3})).shuffle(5).map(Refusing({8})).to_iter_dataset()
    list(ds.on_error("skip", quarantine=path))
    lines = sorted(
        map(json.loads, path.read_text().splitlines()), key=lambda x: x["key"]
    )
    kept = ("key", "operation", "error", "message", "substitute", "stream")
    assert [[line[name] for name in kept] for line in lines] == [
        [3, "read", "OSError", "3 cannot be read", None, 0],
        [8, "Refusing", "ValueError", "8 is bad", None, 0],
    ]


def failing(after):
    yield from range(after)
    raise ValueError("the generator fails")


def test_errors_of_iterables_are_raised():
    ds = grain.IterDataset.from_iterable(lambda: failing(2), replay=True)
    iterator = iter(ds.on_error("skip"))
    assert [next(iterator), next(iterator)] == [0, 1]
    with pytest.raises(ValueError, match="the generator fails"):
        next(iterator)


def test_failing_step_over_iterable_is_skipped():
    ds = grain.IterDataset.from_iterable(lambda: range(5), replay=True)
    iterator = iter(ds.map(Refusing({2})).on_error("skip"))
    assert list(iterator) == [0, 1, 3, 4]
    record = iterator.errors.last[0]
    assert (record.key, record.index, record.operation) == (None, -1, "Refusing")


class OwnIterator(grain.DatasetIterator):
    """Fails for its second element; a user's iterator may not continue after that."""

    def __init__(self):
        super().__init__()
        self.errors = "of the user's"
        self.given = 0

    def __next__(self):
        self.given += 1
        if self.given == 2:
            raise ValueError("the iterator fails")
        return self.given

    def get_state(self):
        return {"given": self.given}

    def set_state(self, state):
        self.given = state["given"]


class Own(grain.IterDataset):
    def __iter__(self):
        return OwnIterator()


def test_errors_of_user_iterators_are_raised():
    iterator = iter(Own().on_error("skip"))
    assert next(iterator) == 1
    with pytest.raises(ValueError, match="the iterator fails"):
        next(iterator)


def test_errors_of_batches_are_raised():
    def broken(elements):
        raise ValueError("no batch")

    ds = numbers().to_iter_dataset().on_error("skip").batch(4, batch_fn=broken)
    with pytest.raises(ValueError, match="no batch"):
        next(iter(ds))


def test_wrong_number_of_elements_raises():
    ds = numbers().block_map(lambda elements: elements[:3], block_size=4)
    with pytest.raises(ValueError, match=r"each of the 4 .* got 3"):
        next(iter(ds.to_iter_dataset().on_error("skip")))


@pytest.mark.parametrize(
    ("ds", "before"),
    [
        (numbers().batch(2).to_iter_dataset(), "BatchMapDataset"),
        (numbers().to_iter_dataset().batch(2), "BatchIterDataset"),
        (
            numbers().to_iter_dataset().mp_prefetch(grain.MultiprocessingOptions(1)),
            "ProcessPrefetchIterDataset",
        ),
    ],
)
def test_on_error_must_precede_batches_and_workers(ds, before):
    with pytest.raises(ValueError, match=f"on_error must come before {before}"):
        ds.on_error("skip")


def test_second_call_is_rejected():
    ds = numbers().to_iter_dataset().on_error("skip").map(str)
    with pytest.raises(ValueError, match="twice"):
        ds.on_error("skip")


def test_workers_need_one_policy():
    parts = [numbers().to_iter_dataset().on_error("skip") for _ in range(2)]
    with pytest.raises(ValueError, match="on_error was called for 2 parts"):
        grain.IterDataset.mix(parts).mp_prefetch(grain.MultiprocessingOptions(1))


def interleaved(parts):
    return grain.experimental.InterleaveIterDataset(parts, cycle_length=2)


def test_one_policy_covers_interleaved_parts():
    parts = [numbers().map(Refusing({3})), numbers().map(Refusing({4}))]
    iterator = iter(interleaved(parts).on_error("skip"))
    expected = sorted([*range(COUNT)] * 2)
    expected.remove(3)
    expected.remove(4)
    assert sorted(iterator) == expected
    assert iterator.errors.count == 2


@pytest.mark.parametrize(
    "make", [list, grain.MapDataset.source], ids=["listed", "made when needed"]
)
def test_parts_with_policies_or_batches_are_rejected(make):
    ds = numbers().map(Refusing({3})).to_iter_dataset()
    with pytest.raises(ValueError, match="Call it after InterleaveIterDataset"):
        next(iter(interleaved(make([ds.on_error("skip")]))))
    with pytest.raises(ValueError, match="on_error must come before BatchIterDataset"):
        next(iter(interleaved(make([ds.batch(4)])).on_error("skip")))


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [None, 1])
def test_restored_iterator_counts_from_0(workers):
    ds = (
        numbers().map(Refusing({3, 9})).to_iter_dataset().on_error("skip", max_errors=2)
    )
    if workers is not None:
        ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    iterator = iter(ds)
    state = iterator.get_state()
    expected = [number for number in range(COUNT) if number not in (3, 9)]
    for _ in range(2):
        assert list(iterator) == expected
        assert iterator.errors.count == 2
        iterator.set_state(state)


def test_dropped_iterator_is_freed_after_an_error():
    iterator = iter(numbers().map(Refusing({0})).to_iter_dataset().on_error("skip"))
    assert next(iterator) == 1
    reference = weakref.ref(iterator)
    gc.disable()
    try:
        del iterator
        assert reference() is None
    finally:
        gc.enable()


class Cannot:
    """Cannot prepare a worker."""

    def __call__(self, worker, workers):
        raise OSError("no service")


@pytest.mark.multiprocess
def test_worker_init_fn_errors_are_raised():
    ds = numbers().to_iter_dataset().on_error("skip")
    options = grain.MultiprocessingOptions(num_workers=1)
    with pytest.raises(OSError, match="no service"):
        next(iter(ds.mp_prefetch(options, worker_init_fn=Cannot())))


def test_measured_chain_skips_the_same_elements():
    options = grain.experimental.DatasetOptions(
        execution_tracking_mode=grain.experimental.ExecutionTrackingMode.STAGE_TIMING
    )
    ds = numbers().map(Refusing({2})).to_iter_dataset().on_error("skip").batch(10)
    iterator = iter(ds.with_options(options))
    found = np.concatenate(list(iterator)).tolist()
    assert found == [number for number in range(COUNT) if number != 2]
    assert iterator.errors.count == 1


def test_length_is_unknown():
    with pytest.raises(TypeError, match="may drop elements"):
        len(numbers().to_iter_dataset().on_error("skip"))
