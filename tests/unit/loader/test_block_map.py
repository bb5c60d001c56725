"""Tests that a block map gives and resumes the same elements as a map."""

import contextlib
import itertools
import os
import pickle

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import gristmill as g
from gristmill._dataset.parallel import unit_records
from gristmill.experimental import (
    ConcatThenSplitIterDataset,
    ThreadPrefetchIterDataset,
    assert_equal_output_after_checkpoint,
)

WORKERS = [0, pytest.param(2, marks=pytest.mark.multiprocess)]
COUNT = 23


class Tens(g.BlockMap):
    """Multiplies arrays or ints by ten and records the sizes of blocks."""

    block_size = 4

    def __init__(self, bad=()):
        self.bad = bad
        self.sizes = []

    def block_map(self, elements):
        self.sizes.append(len(elements))
        for element in elements:
            if not isinstance(element, dict) and np.any(np.isin(element, self.bad)):
                raise ArithmeticError(f"bad {element}")
        return [ten(element) for element in elements]


def ten(element):
    if isinstance(element, dict):
        return {key: 10 * value for key, value in element.items()}
    return 10 * element


class Ten(g.Map):
    """Multiplies one element by ten."""

    def map(self, element):
        return ten(element)


class Odd(g.Filter):
    def filter(self, element):
        return bool(np.sum(element) % 2 == 1)


class Noise(g.RandomMap):
    def random_map(self, element, rng):
        return element + int(rng.integers(5))


class Twice(g.FlatMap):
    max_fan_out = 2

    def flat_map(self, element):
        return [element, element + 1]


def plain(elements):
    return [np.asarray(element).tolist() for element in elements]


def loader(operations, workers=0, **options):
    return g.DataLoader(
        data_source=range(COUNT),
        sampler=g.IndexSampler(COUNT, shuffle=True, seed=3, num_epochs=2),
        operations=operations,
        worker_count=workers,
        **options,
    )


def both(operations):
    """Return the operations twice: with a block map, and a map, in place of True."""
    return [[kind() if op is True else op for op in operations] for kind in (Tens, Ten)]


OPERATIONS = {
    "alone": [True],
    "batch": [True, g.Batch(3)],
    "larger batch": [True, g.Batch(9, drop_remainder=True)],
    "filters around": [Odd(), True, g.Batch(3)],
    "filter behind": [Noise(), True, Odd(), g.Batch(3)],
    "random maps around": [Noise(), True, Noise(), True, Noise(), g.Batch(5)],
    "batches of batches": [g.Batch(2), True, g.Batch(3), True],
    "flat map": [True, Twice(), True, g.Batch(3)],
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_loader_elements_and_resume_match_map(name, workers):
    blocks, singly = both(OPERATIONS[name])
    expected = plain(loader(singly))
    made = loader(blocks, workers, streams=1)
    iterator = iter(made)
    states = [iterator.get_state()]
    found = []
    for element in iterator:
        found += plain([element])
        states.append(iterator.get_state())
    assert found == expected
    iterator = iter(loader(blocks))
    some = states if not workers else states[1::7]
    for state in some:
        iterator.set_state(state)
        assert plain(iterator) == expected[states.index(state) :]


def test_loader_passes_full_blocks():
    step = Tens()
    sequential = {"sampler": g.SequentialSampler(COUNT), "data_source": range(COUNT)}
    assert len(list(g.DataLoader(operations=[step, g.Batch(3)], **sequential))) == 8
    assert step.sizes == [4, 4, 4, 4, 4, 3]


CHAINS = {
    "alone": lambda ds, f: f(ds),
    "shuffle, repeat": lambda ds, f: f(ds).shuffle(seed=1).repeat(2),
    "behind a shuffle": lambda ds, f: f(ds.shuffle(seed=1).repeat(2)),
    "filters": lambda ds, f: f(ds.filter(Odd())).map(lambda x: x + 1).filter(Odd()),
    "random maps": lambda ds, f: f(ds.seed(1).random_map(Noise())).random_map(Noise()),
    "batch": lambda ds, f: f(ds).batch(3),
    "behind a batch": lambda ds, f: f(ds.batch(3)),
    "mixed": lambda ds, f: g.MapDataset.mix([f(ds), ds], [2, 1]),
    "iterated": lambda ds, f: f(ds.to_iter_dataset()),
    "iterated, batch": lambda ds, f: f(ds.to_iter_dataset()).batch(3),
    "iterated, filters": lambda ds, f: (
        f(ds.to_iter_dataset().filter(Odd())).map(lambda x: x + 1).filter(Odd())
    ),
    "iterated, random maps": lambda ds, f: f(
        ds.seed(1).to_iter_dataset().random_map(Noise())
    ).random_map(Noise()),
    "iterated, flat map": lambda ds, f: f(
        g.experimental.FlatMapIterDataset(f(ds.to_iter_dataset()), Twice())
    ),
    "iterated, twice": lambda ds, f: f(f(ds.to_iter_dataset())),
    "iterated, repeat": lambda ds, f: g.experimental.RepeatIterDataset(
        f(ds.to_iter_dataset()), 2
    ),
    "iterated, shuffle": lambda ds, f: f(
        g.experimental.WindowShuffleIterDataset(
            f(ds.to_iter_dataset()), window_size=6, seed=1
        )
    ),
    "thread": lambda ds, f: ThreadPrefetchIterDataset(
        f(ds.to_iter_dataset()), prefetch_buffer_size=3
    ),
    "packed": lambda ds, f: ConcatThenSplitIterDataset(
        f(ds.map(lambda x: {"x": np.full(x % 5 + 1, x)}).to_iter_dataset()),
        length_struct={"x": 7},
    ).map(lambda row: row["x"]),
}


def chain(name, kind):
    def step(ds):
        return ds.apply(kind())

    made = CHAINS[name](g.MapDataset.range(COUNT), step)
    return made.to_iter_dataset() if isinstance(made, g.MapDataset) else made


@pytest.mark.parametrize("name", CHAINS)
def test_dataset_elements_and_resume_match_map(name):
    dataset = chain(name, Tens)
    assert plain(dataset) == plain(chain(name, Ten))
    assert_equal_output_after_checkpoint(dataset)


@pytest.mark.multiprocess
@pytest.mark.parametrize("name", ["batch", "iterated, batch", "packed"])
def test_worker_elements_match_map(name):
    options = g.MultiprocessingOptions(num_workers=2)
    iterator = iter(chain(name, Tens).mp_prefetch(options))
    expected = plain(chain(name, Ten).mp_prefetch(options))
    found, states = [], []
    for element in iterator:
        found += plain([element])
        states.append(iterator.get_state())
    assert found == expected
    for at in (0, len(states) // 2):
        iterator = iter(chain(name, Tens).mp_prefetch(options))
        iterator.set_state(states[at])
        assert plain(iterator) == expected[at + 1 :]


def test_random_access_returns_mapped_elements():
    dataset = g.MapDataset.range(COUNT).apply(Tens())
    assert [dataset[i] for i in (22, 0, 7, 30)] == [220, 0, 70, 70]
    assert dataset._getitems([5, 1, 5]) == [50, 10, 50]


@pytest.mark.parametrize("name", ["alone", "iterated", "behind a batch"])
def test_dataset_passes_full_blocks(name):
    step = Tens()
    list(CHAINS[name](g.MapDataset.range(COUNT), lambda ds: ds.apply(step)))
    assert step.sizes == ([4, 4] if name == "behind a batch" else [4] * 5 + [3])


def test_batches_smaller_than_blocks_use_full_blocks():
    step = Tens()
    list(g.MapDataset.range(24).apply(step).batch(2))
    assert step.sizes == [4] * 6


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    steps=st.lists(
        st.sampled_from(["block", "odd", "noise", "iter", "batch", "flat"]), max_size=6
    ),
    size=st.integers(1, 7),
)
def test_random_chain_matches_maps(steps, size):
    def made(in_blocks):
        ds = g.MapDataset.range(19).seed(7)
        for step in steps:
            ds = extended(ds, step, in_blocks, size)
        return ds.to_iter_dataset() if isinstance(ds, g.MapDataset) else ds

    def elements(ds):
        return plain(itertools.islice(ds, 100))

    try:
        expected = elements(made(False))
    except ValueError:
        hypothesis.reject()  # Grain does not batch elements that may be absent.
    assert elements(made(True)) == expected
    if expected:
        assert_equal_output_after_checkpoint(made(True))


def extended(ds, step, in_blocks, size):
    indexed = isinstance(ds, g.MapDataset)
    match step:
        case "block":
            return ds.block_map(Tens(), size) if in_blocks else ds.map(ten)
        case "odd":
            return ds.filter(Odd())
        case "noise":
            return ds.random_map(Noise())
        case "iter":
            return ds.to_iter_dataset() if indexed else ds
        case "batch":
            return ds.batch(2, batch_fn=sum)
        case _:
            return ds.apply(Twice())


def outcomes(iterable):
    """Return the elements, with error texts in place of elements that failed."""
    iterator, found = iter(iterable), []
    while True:
        try:
            found += plain([next(iterator)])
        except StopIteration:
            return found
        except Exception as error:
            found.append(str(error))


FACES = {
    "MapDataset": lambda step: g.MapDataset.range(COUNT).apply(step),
    "IterDataset": lambda step: g.MapDataset.range(COUNT).to_iter_dataset().apply(step),
    "DataLoader": lambda step: g.DataLoader(
        data_source=range(COUNT),
        sampler=g.SequentialSampler(COUNT),
        operations=[step],
    ),
}


@pytest.mark.parametrize("face", FACES)
def test_bad_element_fails_alone(face):
    found = outcomes(FACES[face](Tens(bad=(5, 6, 22))))
    expected = [10 * i for i in range(COUNT)]
    for bad in (5, 6, 22):
        expected[bad] = f"bad {bad}"
    assert found == expected


@pytest.mark.parametrize("face", FACES)
def test_error_names_the_bad_element(face):
    iterator = iter(FACES[face](Tens(bad=(6,))))
    assert [next(iterator) for _ in range(6)] == [0, 10, 20, 30, 40, 50]
    with pytest.raises(ArithmeticError) as caught:
        next(iterator)
    assert "processed record 6 (index 6)" in str(caught.value.__notes__)


@pytest.mark.parametrize("face", ["MapDataset", "IterDataset"])
@pytest.mark.parametrize("given", range(9))
def test_resume_around_bad_element_is_exact(face, given):
    dataset = iter(FACES[face](Tens(bad=(5,))))
    expected = outcomes(FACES[face](Tens(bad=(5,))))
    for _ in range(given):
        with contextlib.suppress(ArithmeticError):
            next(dataset)
    restored = iter(FACES[face](Tens(bad=(5,))))
    restored.set_state(dataset.get_state())
    assert outcomes(restored) == expected[given:]
    assert outcomes(dataset) == expected[given:]


def test_parent_error_keeps_its_position():
    def fails_at_six(x):
        if x == 6:
            raise OSError("six")
        return x

    numbers = g.MapDataset.range(COUNT).to_iter_dataset().map(fails_at_six)
    found = outcomes(numbers.apply(Tens()))
    assert found == [*range(0, 60, 10), "six", *range(70, 10 * COUNT, 10)]


def halves(elements):
    """Changes its elements in place, and fails at element 6."""
    for element in elements:
        value = element["x"].pop("inner")
        if value == 6:
            raise ArithmeticError("six")
        element["half"] = value / 2
    return elements


@pytest.mark.parametrize("face", ["MapDataset", "IterDataset", "DataLoader"])
def test_function_may_modify_elements_in_place(face):
    rows = g.MapDataset.range(9).map(lambda x: {"x": {"inner": x}})
    if face == "MapDataset":
        found = outcomes(rows.block_map(halves, 4).map(lambda row: row["half"]))
    elif face == "IterDataset":
        made = rows.to_iter_dataset().block_map(halves, 4)
        found = outcomes(made.map(lambda row: row["half"]))
    else:
        step = type("Halves", (g.BlockMap,), {"block_map": staticmethod(halves)})()
        step.block_size = 4
        sequential = g.SequentialSampler(9)
        made = g.DataLoader(data_source=rows, sampler=sequential, operations=[step])
        found = [x["half"] if isinstance(x, dict) else x for x in outcomes(made)]
    assert found == [0, 0.5, 1, 1.5, 2, 2.5, "six", 3.5, 4]


class Wrong(g.BlockMap):
    block_size = 4

    def __init__(self, function):
        self.function = function

    def block_map(self, elements):
        return self.function(elements)


@pytest.mark.parametrize("face", FACES)
def test_wrong_number_of_results_is_an_error(face):
    first = iter(FACES[face](Wrong(lambda elements: elements[:1])))
    with pytest.raises(ValueError, match=r"each of the 4 .* got 1 elements"):
        next(first)
    # If a function drops an element, the error names that element.
    without_two = Wrong(lambda elements: [x for x in elements if x != 2])
    iterator = iter(FACES[face](without_two))
    assert [next(iterator), next(iterator)] == [0, 1]
    with pytest.raises(ValueError, match=r"each of the 1 .* got 0 elements") as two:
        next(iterator)
    assert "record 2 " in str(two.value.__notes__)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    "wrong",
    [lambda elements: {"x": elements}, lambda elements: iter(elements), len, np.sum],
)
def test_non_sequence_result_is_refused(face, wrong):
    with pytest.raises(TypeError, match="must return a list with one element for"):
        list(FACES[face](Wrong(wrong)))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("kind", [tuple, np.array])
def test_result_may_be_any_sequence(face, kind):
    made = FACES[face](Wrong(lambda elements: kind(elements)))
    assert plain(made) == list(range(COUNT))


@pytest.mark.parametrize("kind", [g.MapDataset, g.IterDataset])
def test_arguments_are_checked(kind):
    ds = g.MapDataset.range(3)
    ds = ds if kind is g.MapDataset else ds.to_iter_dataset()
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        ds.block_map(list, 0)
    with pytest.raises(TypeError, match="block_size must be an int, got float"):
        ds.block_map(list, 2.5)
    with pytest.raises(TypeError, match="must be a function, got int"):
        ds.block_map(3)
    with pytest.raises(TypeError, match=r"use ds.map\("):
        ds.block_map(Ten())
    with pytest.raises(TypeError, match=r"use ds.block_map\("):
        ds.map(Tens())
    assert "block_size=64" in str(ds.block_map(list))
    assert "transform=Tens, block_size=4" in str(ds.apply(Tens()))


@pytest.mark.parametrize("behind", [[], [Twice()]])
def test_loader_checks_block_size(behind):
    step = Tens()
    step.block_size = 0
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        loader([step, *behind])


def test_dataset_with_block_map_is_picklable():
    ds = pickle.loads(pickle.dumps(g.MapDataset.range(5).apply(Tens())))
    assert list(ds) == [0, 10, 20, 30, 40]


def test_absent_elements_are_not_passed_to_function():
    seen = []

    def remembered(elements):
        seen.extend(elements)
        return elements

    ds = g.MapDataset.range(6).filter(lambda x: x % 2).block_map(remembered, 4)
    assert [ds[i] for i in range(6)] == [None, 1, None, 3, None, 5]
    assert seen == [1, 3, 5]
    nones = g.MapDataset.range(6).filter(lambda x: x % 2)
    nones = nones.to_iter_dataset(allow_nones=True).block_map(remembered, 4)
    assert list(nones) == [None, 1, None, 3, None, 5]
    assert seen == [1, 3, 5, 1, 3, 5]


def test_next_index_counts_elements_not_blocks():
    experimental = g.experimental
    iterator = iter(g.MapDataset.range(COUNT).to_iter_dataset().apply(Tens()))
    for index in range(7):
        assert experimental.get_next_index(iterator) == index
        assert next(iterator) == 10 * index
    experimental.set_next_index(iterator, 17)
    assert [next(iterator), next(iterator)] == [170, 180]
    assert iterator.get_state()["given_of_block"] == 2


def test_state_restores_with_another_block_size():
    numbers = g.MapDataset.range(COUNT).to_iter_dataset()
    iterator = iter(numbers.block_map(Tens(), 10))
    for _ in range(7):
        next(iterator)
    other = iter(numbers.block_map(Tens(), 3))
    other.set_state(iterator.get_state())
    assert list(other) == list(range(70, 10 * COUNT, 10))


def test_worker_unit_covers_a_block():
    numbers = g.MapDataset.range(COUNT)
    batches = numbers.block_map(list, 20).to_iter_dataset().batch(8)
    assert unit_records.records_of_unit(batches) == 24
    batches = numbers.batch(3).block_map(list, 20).to_iter_dataset().batch(8)
    assert unit_records.records_of_unit(batches) == 24
    batches = numbers.block_map(list, 20).batch(4).to_iter_dataset()
    assert unit_records.records_of_unit(batches) == 8


class Reads:
    """Holds records of bytes and counts the reads of each."""

    def __init__(self):
        self.reads = [0] * COUNT

    def __len__(self):
        return COUNT

    def __getitem__(self, key):
        self.reads[key] += 1
        return b"%d" % key


class Digits(g.BlockMap):
    block_size = 8

    def block_map(self, elements):
        return [1 // (int(element) % 5) + int(element) for element in elements]


def test_records_after_bad_one_are_read_once():
    source = Reads()
    found = g.DataLoader(
        data_source=source,
        sampler=g.SequentialSampler(COUNT),
        operations=[Digits(), g.Batch(3)],
        on_error="skip",
    )
    expected = [i + (i % 5 == 1) for i in range(COUNT) if i % 5]
    assert [x for batch in found for x in batch.tolist()] == expected
    assert source.reads == [1] * COUNT


class Deadly(g.BlockMap):
    block_size = 4

    def block_map(self, elements):
        if 6 in elements:
            os._exit(3)
        return elements


@pytest.mark.multiprocess
def test_element_that_kills_worker_is_named():
    iterator = iter(
        g.DataLoader(
            data_source=range(COUNT),
            sampler=g.SequentialSampler(COUNT),
            operations=[Deadly()],
            worker_count=1,
            max_restarts=1,
        )
    )
    assert [next(iterator) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(g.WorkerDied, match="on record 6 of stream 0"):
        next(iterator)


def test_interrupt_loses_no_element():
    class Once(g.BlockMap):
        block_size = 4
        interrupted = False

        def block_map(self, elements):
            if 5 in elements and not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            return elements

    for make in FACES.values():
        iterator, found, interrupts = iter(make(Once())), [], 0
        while True:
            try:
                found.append(next(iterator))
            except KeyboardInterrupt:
                interrupts += 1
            except StopIteration:
                break
        assert (interrupts, found) == (1, list(range(COUNT)))
