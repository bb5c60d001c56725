"""Chains of datasets computed by worker processes: IterDataset.mp_prefetch."""

import functools
import gc
import itertools
import json
import os
import pathlib
import threading
import traceback

import numpy as np
import pytest

import gristmill as g
from faults.scripts import run
from faults.toolbox import children, descendants, has_ended, wait_until
from gristmill import experimental
from gristmill._dataset.parallel import unit_records
from gristmill.errors import StateMismatch

pytestmark = pytest.mark.multiprocess


def workers(number, buffer=1):
    return g.MultiprocessingOptions(num_workers=number, per_worker_buffer_size=buffer)


def numbers(count=30):
    return g.MapDataset.range(count)


def plain(element):
    """Return an element as nested lists of Python numbers."""
    if isinstance(element, dict):
        return {key: plain(value) for key, value in element.items()}
    return np.asarray(element).tolist()


def taken(iterator):
    return [plain(element) for element in iterator]


class Words(g.IterDataset):
    """A user's source without indices, whose state grows and shrinks."""

    def __init__(self, count, longest=0):
        super().__init__()
        self.part = range(count)
        self.longest = longest

    def set_slice(self, sl, sequential_slice=False):
        self.part = self.part[sl]

    def __iter__(self):
        return WordsIterator(self.part, self.longest)


class WordsIterator(g.DatasetIterator):
    def __init__(self, part, longest):
        super().__init__()
        self.part, self.longest, self.place = part, longest, 0

    def __next__(self):
        if self.place == len(self.part):
            raise StopIteration
        self.place += 1
        return self.part[self.place - 1]

    def get_state(self):
        filler = self.place * 7919 % self.longest if self.longest else 0
        return {"place": self.place, "filler": "x" * filler}

    def set_state(self, state):
        self.place = state["place"]
        assert state["filler"] == self.get_state()["filler"]


def absent(x):
    return None if x % 7 == 3 else x


def add_draw(x, rng):
    return {"x": x, "r": rng.integers(1000)}


CHAINS = {
    "batches": lambda: numbers().shuffle(seed=1).to_iter_dataset().batch(4),
    "whole batches": lambda: numbers().to_iter_dataset().batch(4, drop_remainder=True),
    "rows": lambda: (
        g.MapDataset.source(np.arange(60.0).reshape(30, 2))
        .shuffle(seed=2)
        .to_iter_dataset()
        .batch(4)
    ),
    "single elements": lambda: numbers().map(lambda x: x * x).to_iter_dataset(),
    "absent elements": lambda: numbers(70).map(absent).to_iter_dataset().batch(3),
    "filter": lambda: numbers().to_iter_dataset().filter(lambda x: x % 3 > 0).batch(3),
    "random": lambda: numbers().seed(5).to_iter_dataset().random_map(add_draw).batch(2),
    "counted": lambda: (
        numbers()
        .filter(lambda x: x % 4 > 0)
        .to_iter_dataset()
        .map_with_index(lambda i, x: [i, x])
    ),
    "mixed": lambda: g.IterDataset.mix(
        [numbers(9).to_iter_dataset(), numbers(20).to_iter_dataset().batch(1)]
    ),
    "packing": lambda: (
        numbers()
        .map(lambda x: {"tokens": np.arange(x % 7 + 1)})
        .to_iter_dataset()
        .pipe(
            experimental.FirstFitPackIterDataset,
            length_struct={"tokens": 8},
            num_packing_bins=3,
        )
        .batch(2)
    ),
    "interleave and window": lambda: (
        experimental.InterleaveIterDataset(
            [numbers(count) for count in (3, 9, 2, 4, 5)], cycle_length=2
        )
        .pipe(experimental.WindowShuffleIterDataset, window_size=4, seed=1)
        .pipe(experimental.LimitIterDataset, 7)
    ),
    "thread and repeat": lambda: (
        numbers(7)
        .to_iter_dataset()
        .filter(lambda x: x != 3)
        .pipe(experimental.ThreadPrefetchIterDataset, prefetch_buffer_size=3)
        .pipe(experimental.RepeatIterDataset, num_epochs=2)
    ),
    "user's": lambda: Words(25).map(lambda x: -x).batch(2),
    "long states": lambda: Words(25, longest=60_000),
    "fewer than streams": lambda: numbers(2).to_iter_dataset().batch(1),
    "nothing": lambda: numbers(0).to_iter_dataset(),
}


@pytest.mark.claim(
    "mp_prefetch states need the same number of workers; start_prefetch() on "
    "a new iterator does nothing"
)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_worker_count_resumes_any_state(chain, count):
    dataset = CHAINS[chain]()
    streams = 3
    alone = iter(dataset.mp_prefetch(workers(0), streams=streams))
    elements, states = [], [alone.get_state()]
    for element in alone:
        elements.append(plain(element))
        states.append(alone.get_state())
    final = alone.get_state()
    iterator = iter(dataset.mp_prefetch(workers(count), streams=streams))
    for place in sorted({0, len(elements) // 2, len(elements)}):
        iterator.set_state(json.loads(json.dumps(states[place])))
        assert iterator.get_state() == states[place]
        for element, state in zip(elements[place:], states[place + 1 :], strict=True):
            assert plain(next(iterator)) == element
            assert iterator.get_state() == state
        assert next(iterator, None) is next(iterator, None) is None
        assert iterator.get_state() == final
    iterator.close()


def test_streams_take_turns_over_slices():
    dataset = numbers(10).to_iter_dataset().batch(2)
    assert taken(dataset.mp_prefetch(workers(2))) == [
        [0, 2],
        [1, 3],
        [4, 6],
        [5, 7],
        [8],
        [9],
    ]
    sequential = dataset.mp_prefetch(workers(2), sequential_slice=True)
    assert taken(sequential) == [[0, 1], [5, 6], [2, 3], [7, 8], [4], [9]]
    assert taken(dataset.mp_prefetch(workers(2), streams=1)) == taken(dataset)


@pytest.mark.claim(
    "If a chain contains a dataset twice, mp_prefetch and "
    "multithread_prefetch slice it twice and lose elements"
)
def test_dataset_used_twice_is_sliced_once():
    part = numbers(8).to_iter_dataset()
    zipped = g.experimental.ZipIterDataset([part, part])
    assert list(zipped.mp_prefetch(workers(2))) == [(i, i) for i in range(8)]


def test_state_decides_stream_count():
    dataset = numbers(12).to_iter_dataset()
    saved = iter(dataset.mp_prefetch(workers(3)))
    assert [next(saved) for _ in range(5)] == [0, 1, 2, 3, 4]
    state = saved.get_state()
    rest = taken(saved)
    other = iter(dataset.mp_prefetch(workers(2)))
    next(other)
    other.set_state(state)
    assert taken(other) == rest
    fixed = iter(dataset.mp_prefetch(workers(2), streams=2))
    with pytest.raises(StateMismatch, match=r"must have 2 streams, .* got 3\."):
        fixed.set_state(state)


def test_rng_matches_single_process():
    dataset = numbers(20).seed(7).to_iter_dataset().random_map(add_draw)
    expected = taken(dataset)
    for count in (1, 2, 3):
        assert taken(dataset.mp_prefetch(workers(count))) == expected


def test_zero_workers_return_the_dataset_itself():
    dataset = numbers().to_iter_dataset()
    assert dataset.mp_prefetch(workers(0)) is dataset


def test_default_is_ten_workers():
    iterator = iter(numbers().to_iter_dataset().mp_prefetch())
    assert len(iterator.get_state()["iterators_in_use_states"]) == 10


class Twice(g.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element):
        return [element, element]


class Same(g.RandomMapTransform):
    def random_map(self, element, rng):
        return element


class Own(g.MapDataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        return index


def is_kept(element):
    return element % 3 > 0


OWNED = {
    "filter": numbers(200).to_iter_dataset().filter(is_kept),
    "flat map": numbers(200).to_iter_dataset().apply(Twice()),
    "random map": numbers(200).seed(1).to_iter_dataset().random_map(Same()),
    "block map": numbers(200).to_iter_dataset().block_map(list),
    "filter before": numbers(200).filter(is_kept).to_iter_dataset(),
    "flat map before": numbers(200).apply(Twice()).to_iter_dataset(),
    "own node before": Own().to_iter_dataset(),
}
SHARED = {
    "map, batch": numbers(200).to_iter_dataset().map(abs).batch(4),
    "random map, batch before": numbers(200)
    .seed(1)
    .shuffle()
    .random_map(Same())
    .block_map(list)
    .batch(4)
    .to_iter_dataset(),
}


@pytest.mark.claim(
    "Some steps bind a stream to one worker, so that more workers than "
    "streams do not help."
)
@pytest.mark.parametrize("dataset", OWNED.values(), ids=OWNED)
def test_stateful_steps_bind_stream_to_one_worker(dataset):
    made = dataset.map(lambda _: os.getpid()).mp_prefetch(workers(4), streams=2)
    pids = [*itertools.islice(made, 50)]  # Both streams in turn; neither has ended.
    assert [len({*pids[stream::2]}) for stream in (0, 1)] == [1, 1]


@pytest.mark.parametrize("dataset", SHARED.values(), ids=SHARED)
def test_maps_and_batches_do_not_bind_stream_to_worker(dataset):
    assert unit_records.records_of_unit(dataset) is not None


@pytest.mark.parametrize("streams", [0, -1, 1.5, "2"])
def test_streams_must_be_a_positive_int(streams):
    with pytest.raises((ValueError, TypeError), match="streams"):
        numbers().to_iter_dataset().mp_prefetch(workers(2), streams=streams)


def test_buffer_size_must_be_positive():
    with pytest.raises(ValueError, match="`buffer_size` must be greater than 0, got 0"):
        numbers().to_iter_dataset().mp_prefetch(workers(2, buffer=0))


def test_prefetch_is_a_deprecated_alias():
    dataset = numbers(6).to_iter_dataset()
    with pytest.warns(DeprecationWarning, match="Please use `mp_prefetch` instead"):
        prefetched = dataset.prefetch(workers(2))
    assert taken(prefetched) == list(range(6))


# Errors


def fails_at(bad, x):
    if x == bad:
        raise LookupError(f"no {x}")
    return x


@pytest.mark.parametrize("counted", [False, True])
def test_error_keeps_type_and_place_and_is_consumed(counted):
    dataset = numbers(10).map(functools.partial(fails_at, 5)).to_iter_dataset()
    if counted:
        dataset = dataset.map_with_index(lambda i, x: x)
    iterator = iter(dataset.batch(2).mp_prefetch(workers(2)))
    assert [plain(next(iterator)) for _ in range(3)] == [[0, 2], [1, 3], [4, 6]]
    with pytest.raises(LookupError, match="no 5") as caught:
        next(iterator)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "fails_at"
    assert caught.value.__notes__[-1].startswith("in worker ")
    state = iterator.get_state()
    assert taken(iterator) == [[8], [7, 9]]
    iterator.set_state(state)
    assert taken(iterator) == [[8], [7, 9]]


def test_unsliceable_source_is_rejected_by_several_workers():
    class Endless(g.IterDataset):
        def __iter__(self):
            return WordsIterator(range(3), 0)

    assert taken(Endless().mp_prefetch(workers(1))) == [0, 1, 2]
    iterator = iter(Endless().mp_prefetch(workers(2)))
    for _ in range(2):
        with pytest.raises(ValueError, match="Cannot slice `IterDataset` source"):
            next(iterator)


def test_unpicklable_transform_is_named():
    lock = threading.Lock()

    def guarded(x):
        with lock:
            return x

    dataset = numbers().to_iter_dataset().map(guarded).batch(2)
    with pytest.raises(TypeError, match="cannot pickle") as caught:
        next(iter(dataset.mp_prefetch(workers(2))))
    *_, note = caught.value.__notes__
    assert note.startswith("Dataset: MapIterDataset(transform=")
    assert "cannot be pickled!" in note


def test_too_long_state_raises_at_its_element():
    dataset = Words(12, longest=100_000)  # 7919 bytes after 1, 87109 after 11...
    iterator = iter(dataset.mp_prefetch(workers(1)))
    got = [next(iterator) for _ in range(8)]
    assert got == list(range(8))
    state = iterator.get_state()
    with pytest.raises(ValueError, match=r"at most 65544 bytes, .* 71\d{3} bytes"):
        next(iterator)
    assert iterator.get_state() == state
    for _ in range(3):
        with pytest.raises(ValueError, match="Keep less in the state"):
            next(iterator)
    assert next(iterator, None) is None


def test_repeatedly_dying_worker_is_an_error():
    def exits_at(x):
        if x == 5:
            os._exit(7)
        return x

    for chain in (numbers(), numbers().filter(lambda x: True)):
        iterator = iter(chain.map(exits_at).to_iter_dataset().mp_prefetch(workers(2)))
        got = []
        with pytest.raises(
            g.WorkerDied,
            match="Worker process was terminated unexpectedly with exit code 7: worker",
        ) as caught:
            got.extend(next(iterator) for _ in range(20))
        assert "max_restarts=1" in str(caught.value)
        iterator.close()


@pytest.mark.parametrize(
    "state", [{"next_index": 3}, None, {"exhausted": [0]}, "text", {}]
)
def test_states_of_other_chains_are_rejected(state):
    iterator = iter(numbers().to_iter_dataset().mp_prefetch(workers(2)))
    with pytest.raises(StateMismatch, match="Expected the state of a dataset with"):
        iterator.set_state(state)


def test_mismatched_states_are_rejected():
    iterator = iter(numbers(10).to_iter_dataset().mp_prefetch(workers(2)))
    state = iterator.get_state()
    with pytest.raises(StateMismatch, match="position for each of 2 streams"):
        iterator.set_state({**state, "exhausted": [0]})
    with pytest.raises(StateMismatch, match="position for each of 2 streams"):
        iterator.set_state({**state, "iterators_in_use_indices": [1, 0]})
    with pytest.raises(StateMismatch, match=r"has the keys \[.counter.\]"):
        iterator.set_state({**state, "iterators_in_use_states": [{"counter": 1}] * 2})
    with pytest.raises(IndexError, match=r"`next_index` 6 is out of range .* 5"):
        iterator.set_state(
            {**state, "iterators_in_use_states": [{"next_index": 6}] * 2}
        )
    assert taken(iterator) == list(range(10))


# Lifetime of workers


def test_worker_init_fn_runs_first_in_each_worker():
    marks = []

    def begin(worker, count):
        marks.append((worker, count))

    dataset = Words(8).map(lambda x: (x, tuple(marks)))
    elements = list(dataset.mp_prefetch(workers(2), begin))
    assert elements == [(x, ((x % 2, 2),)) for x in range(8)]
    assert marks == []


def test_worker_init_fn_error_is_raised():
    def begin(worker, count):
        raise PermissionError(f"not {worker} of {count}")

    for dataset in (numbers().to_iter_dataset(), Words(5)):
        iterator = iter(dataset.mp_prefetch(workers(1), begin))
        for _ in range(2):
            with pytest.raises(PermissionError, match="not 0 of 1"):
                next(iterator)


def living():
    """Return the Gristmill processes that descend from this process."""
    return [
        pid
        for pid in descendants(os.getpid())
        if not has_ended(pid) and "gristmill" in command_of(pid)
    ]


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.claim(
    "mp_prefetch states need the same number of workers; start_prefetch() on "
    "a new iterator does nothing"
)
def test_workers_start_lazily_and_are_cleaned_up():
    list(numbers().to_iter_dataset().mp_prefetch(workers(1)))
    gc.collect()
    for _ in wait_until("no process but launchers"):
        if set(living()) <= set(children(os.getpid())):
            break
    files = len(os.listdir("/proc/self/fd"))
    launcher = living()
    iterator = iter(numbers().to_iter_dataset().mp_prefetch(workers(2)))
    iterator.set_state(iterator.get_state())
    assert living() == launcher
    iterator.start_prefetch()
    for _ in wait_until("a zygote and two workers"):
        if len(living()) == len(launcher) + 3:
            break
    state = iterator.get_state()
    assert state["iterators_in_use_states"] == [{"next_index": 0}] * 2
    kept = [next(iterator) for _ in range(3)]
    del iterator
    gc.collect()
    for _ in wait_until("no worker"):
        if living() == launcher:
            break
    assert kept == [0, 1, 2]
    assert len(os.listdir("/proc/self/fd")) == files


def test_iterator_open_at_exit_ends_silently():
    pytest.importorskip("torch")
    assert run("mp_prefetch/left_at_exit") == "torch\n[0, 1, 2, 3]\n"


def test_workers_restart_after_set_state():
    iterator = iter(Words(6).mp_prefetch(workers(2)))
    begin = iterator.get_state()
    assert taken(iterator) == list(range(6))
    iterator.set_state(begin)
    assert taken(iterator) == list(range(6))
    iterator.close()


def test_workers_are_reused_across_epochs():
    def where(x):
        return x, os.getpid()

    dataset = numbers(6).to_iter_dataset().map_with_index(lambda i, x: where(x))
    dataset = dataset.mp_prefetch(workers(2))
    iterator = iter(experimental.RepeatIterDataset(dataset, num_epochs=3))
    elements = list(iterator)
    assert [x for x, _ in elements] == 3 * list(range(6))
    # New workers in each epoch would be at least three processes. One of the two
    # reused workers may start too late to compute anything.
    assert len({pid for _, pid in elements}) <= 2
    iterator.close()


def test_closed_iterator_raises():
    iterator = iter(numbers().to_iter_dataset().mp_prefetch(workers(2)))
    next(iterator)
    state = iterator.get_state()
    iterator.close()
    iterator.close()
    with pytest.raises(ValueError, match="Trying to advance a closed iterator"):
        next(iterator)
    with pytest.raises(ValueError, match="Attempting to use a closed iterator"):
        iterator.start_prefetch()
    assert iterator.get_state() == state


# Shared memory, options and seeds


def test_batches_in_shared_memory_can_be_kept():
    source = g.MapDataset.source(np.arange(40 * 4096.0).reshape(40, 4096))
    dataset = source.to_iter_dataset().map(lambda row: row + 1).batch(4)
    batches = list(dataset.mp_prefetch(workers(2)))
    for batch, alone in zip(
        batches, dataset.mp_prefetch(workers(0), streams=2), strict=True
    ):
        assert not batch.flags.owndata and batch.flags.writeable
        np.testing.assert_array_equal(batch, alone)


@pytest.mark.parametrize(
    ("chain", "records"),
    [
        (numbers(6400).batch(32).to_iter_dataset(), 1),
        (numbers(6400).to_iter_dataset().batch(32), 32),
        (numbers(6400).batch(4).batch(2).to_iter_dataset(), 2),
        (numbers(6400).to_iter_dataset(), 16),
        (g.MapDataset.mix([numbers(), numbers().batch(8)]).to_iter_dataset(), 2),
    ],
)
def test_unit_holds_one_batch(chain, records):
    assert unit_records.records_of_unit(chain) == records


def test_options_set_before_or_after_reach_workers():
    options = experimental.DatasetOptions(filter_raise_threshold_ratio=0.5)
    few = numbers(5000).to_iter_dataset().filter(lambda x: x % 100 == 0)

    def with_options(dataset):
        return dataset.pipe(experimental.WithOptionsIterDataset, options)

    for dataset in (
        with_options(few).mp_prefetch(workers(1)),
        with_options(few.mp_prefetch(workers(1))),
        with_options(numbers(5000).to_iter_dataset())
        .mp_prefetch(workers(1))
        .filter(lambda x: x % 100 == 0),
    ):
        with pytest.raises(ValueError, match="skipped 99"):
            list(dataset)


def test_seed_before_workers_does_not_reach_later_steps():
    dataset = numbers().seed(3).to_iter_dataset().mp_prefetch(workers(2))
    with pytest.raises(ValueError, match="`random_map` requires a seed"):
        dataset.random_map(add_draw)
    assert len(list(dataset.seed(1).random_map(add_draw))) == 30


def test_one_stream_has_next_index():
    dataset = numbers(20).to_iter_dataset().batch(2)
    iterator = iter(dataset.mp_prefetch(workers(1)))
    assert experimental.get_next_index(iterator) == 0
    assert plain(next(iterator)) == [0, 1]
    assert experimental.get_next_index(iterator) == 1
    experimental.set_next_index(iterator, 4)
    assert iterator.get_state()["iterators_in_use_states"] == [{"next_index": 8}]
    assert plain(next(iterator)) == [8, 9]
    filtered = iter(dataset.filter(len).mp_prefetch(workers(1)))
    with pytest.raises(NotImplementedError):
        experimental.set_next_index(filtered, 1)
    with pytest.raises(
        NotImplementedError, match=r"1 stream, got .*streams=2.* Pass streams=1"
    ):
        experimental.get_next_index(iter(dataset.mp_prefetch(workers(2))))


def test_element_spec_equals_spec_of_the_chain():
    dataset = numbers().to_iter_dataset().batch(2, drop_remainder=True)
    spec = experimental.get_element_spec(dataset.mp_prefetch(workers(2)))
    assert spec == experimental.get_element_spec(dataset)
