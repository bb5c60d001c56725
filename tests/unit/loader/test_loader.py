"""Tests of DataLoader: bad input, ids, replay, streams and reading ahead."""

import hashlib
import json
import logging
import operator
import os
import signal
import threading

import numpy as np
import pytest

import gristmill as g
from gristmill import transforms
from gristmill._base import blocked_time
from gristmill.errors import ShapeMismatch, StateMismatch, WorkerDied


class Add(g.MapTransform):
    def map(self, element):
        return element + 1


class Odd(g.FilterTransform):
    def filter(self, element):
        return bool(np.asarray(element).flat[0] % 2)


class Draw(g.RandomMapTransform):
    def random_map(self, element, rng):
        return element + 10 * int(rng.integers(1000))


class Twice(g.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element):
        return [element] * int(element % 3)


class Parts(g.transforms.FlatMap):
    """Splits x into `x % most` elements: x, x + 1000, x + 2000, ..."""

    max_fan_out = 10

    def __init__(self, most=5):
        self.most = most

    def flat_map(self, element):
        count = int(np.asarray(element).flat[0]) % self.most
        return [element + 1000 * part for part in range(count)]


class Number(g.MapWithIndex):
    def map_with_index(self, index, element):
        return index, element


class FailsAt(g.MapTransform):
    def __init__(self, record):
        self.record = record

    def map(self, element):
        if np.asarray(element).flat[0] == self.record:
            raise KeyError("no such file")
        return element


def loader(operations=(), *, records=12, shuffle=False, source=None, **options):
    """Return a loader of 0, 1, ... by __getitem__, one epoch, seed 3."""
    if source is None:
        source = g.RangeDataSource(0, records, 1)
    sampler = g.IndexSampler(records, shuffle=shuffle, num_epochs=1, seed=3)
    return g.DataLoader(
        data_source=source, sampler=sampler, operations=operations, **options
    )


def plain(outputs):
    """Return outputs as lists and ints."""
    return [np.asarray(output).tolist() for output in outputs]


BAD_ARGUMENTS = [
    ({"worker_count": -1}, ValueError, "Worker count should be greater than or equal"),
    (
        {"worker_count": "2"},
        TypeError,
        "worker_count must be an int, got str. Pass 0 to compute in this process",
    ),
    ({"worker_buffer_size": -1}, ValueError, "Worker buffer size must be greater"),
    ({"worker_buffer_size": 1.5}, TypeError, "worker_buffer_size must be an int"),
    ({"streams": 0}, ValueError, "streams must be at least 1, got 0"),
    ({"streams": 2.0}, TypeError, "streams must be an int, got float"),
    ({"max_restarts": -1}, ValueError, "max_restarts must be at least 0, got -1"),
    ({"max_restarts": 101}, ValueError, "max_restarts must be at most 100, got 101"),
    ({"max_restarts": None}, TypeError, "max_restarts must be an int, got NoneType"),
    ({"stall_timeout": 0}, ValueError, "stall_timeout must be more than 0 seconds"),
    ({"stall_timeout": float("nan")}, ValueError, "stall_timeout must be more than 0"),
    ({"stall_timeout": "60"}, TypeError, "stall_timeout must be a number or None"),
    ({"stall_action": "kill"}, ValueError, r"one of \('warn', 'restart'\), got 'kill'"),
    ({"memory_limit": 0}, ValueError, "memory_limit must be more than 0 bytes, got 0"),
    ({"memory_limit": 1e9}, TypeError, "memory_limit must be an int, got float"),
    ({"read_options": 3}, TypeError, "read_options must be a ReadOptions or None"),
    ({"shard_options": (0, 2)}, TypeError, "must be a ShardOptions, got tuple"),
    ({"operations": g.Batch(2)}, TypeError, "operations must be a sequence, got Batch"),
    ({"operations": [g.Batch(0)]}, ValueError, "batch_size must be positive, got 0"),
    ({"operations": [g.Batch(2.5)]}, TypeError, r"of operations\[0\] must be an int"),
    (
        {"operations": [5]},
        TypeError,
        r"operations\[0\] must be callable or .*, got int",
    ),
    (
        {"operations": [Add]},
        TypeError,
        r"operations\[0\] must be an instance, got the class Add",
    ),
    ({"source": []}, ValueError, "data_source .* got a list with 0 records"),
    ({"source": 7}, TypeError, "data_source .* got a int, which has no __len__"),
]


@pytest.mark.claim(
    "Arguments of a wrong type or value fail at the first element, often with "
    "AttributeError, AssertionError or ZeroDivisionError, or never"
)
@pytest.mark.parametrize(("options", "kind", "text"), BAD_ARGUMENTS)
def test_bad_arguments_are_refused(options, kind, text):
    with pytest.raises(kind, match=text) as caught:
        loader(**options)
    assert type(caught.value) is kind


BAD_SAMPLERS = [
    ((0,), {}, ValueError, "Invalid number of records in Sampler. Got 0 records"),
    ((-4,), {}, ValueError, "Invalid number of records in Sampler. Got -4 records"),
    ((5,), {"num_epochs": 0}, ValueError, "Invalid number of epochs in Index Sampler"),
    ((5,), {"shuffle": True}, ValueError, "Shuffling requires specifying a seed"),
    ((5,), {"seed": 2**32}, ValueError, "Seed should be positive 32-bit integer"),
    ((5,), {"seed": -1}, ValueError, "Seed should be positive 32-bit integer"),
    ((5,), {"seed": "1"}, TypeError, "Expected seed of int type"),
]


@pytest.mark.parametrize(("arguments", "options", "kind", "text"), BAD_SAMPLERS)
def test_bad_sampler_arguments_are_refused(arguments, options, kind, text):
    with pytest.raises(kind, match=text):
        g.IndexSampler(*arguments, **options)


def test_sampler_of_wrong_type_is_refused():
    with pytest.raises(ValueError, match="No shard options were provided to the Data"):
        g.DataLoader(data_source=[1], sampler=5)
    with pytest.raises(TypeError, match=r"must have __getitem__\(index\).* got int"):
        g.DataLoader(data_source=[1], sampler=5, shard_options=g.NoSharding())


@pytest.mark.claim(
    "An object that is not a state raises KeyError, TypeError or AttributeError"
)
@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        (b"junk", StateMismatch, "not the JSON text that get_state"),
        (b"[]", StateMismatch, "JSON list, expected an object"),
        (b"{}", StateMismatch, "does not describe a position of this pipeline"),
        ("{}", TypeError, "bytes that get_state.* returned, got str"),
        ({}, TypeError, "bytes that get_state.* returned, got dict"),
    ],
)
def test_invalid_state_is_refused(state, kind, text):
    with pytest.raises(kind, match=text):
        iter(loader()).set_state(state)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"records": 11}, "^Sampler in checkpoint does not match dataloader sampler"),
        ({"shuffle": True}, "^Sampler in checkpoint does not match dataloader sampler"),
        (
            {"source": list(range(12))},
            "^DataSource in checkpoint does not match datasource in dataloader",
        ),
        ({"operations": [Twice()]}, "^Checkpoint does not describe a position"),
    ],
)
def test_state_of_another_pipeline_is_refused(options, text):
    state = iter(loader(**options)).get_state()
    with pytest.raises(ValueError, match=text) as caught:
        iter(loader()).set_state(state)
    assert type(caught.value) is StateMismatch


def test_state_past_the_end_is_refused():
    state = json.loads(iter(loader()).get_state())
    state["last_seen_indices"]["0"] = 100
    with pytest.raises(IndexError, match=r"`next_index` 101 is out of range .* 12"):
        iter(loader()).set_state(json.dumps(state).encode())


@pytest.mark.parametrize(
    ("found", "changed"),
    [
        ('"worker_count": 0', '"worker_count": -2'),
        ('"0": -1', '"0": "a"'),
        ('"last_worker_index": -1', '"last_worker_index": null'),
        ('"last_seen_indices"', '"last_seen"'),
    ],
)
def test_changed_state_is_refused(found, changed):
    state = iter(loader()).get_state().decode()
    assert found in state
    with pytest.raises(StateMismatch, match="does not describe a position"):
        iter(loader()).set_state(state.replace(found, changed).encode())


def test_refused_state_does_not_move_iterator():
    iterator = iter(loader())
    assert next(iterator) == 0
    with pytest.raises(StateMismatch):
        iterator.set_state(b"{}")
    assert next(iterator) == 1


@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.multiprocess)]
)
def test_unequal_shapes_in_a_batch_are_an_error(workers):
    source = [{"x": np.zeros(2 + (i == 1))} for i in range(12)]
    iterator = iter(
        loader([g.Batch(3)], source=source, worker_count=workers, streams=1)
    )
    with pytest.raises(ValueError, match=r"^Expected all input elements to have") as at:
        next(iterator)
    assert type(at.value) is ShapeMismatch
    assert "element['x']: element 1 of the batch has shape (3,)" in str(at.value)
    assert "element 0 has (2,)" in str(at.value)
    assert next(iterator)["x"].shape == (3, 2)


WITH_AND_WITHOUT = pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.multiprocess)]
)


def ids_of(operations, workers, **options):
    """Return (ids before the first output, [(output, its ids)])."""
    iterator = iter(loader(operations, worker_count=workers, streams=1, **options))
    before = iterator.ids().tolist()
    pairs = [(output, iterator.ids().tolist()) for output in iterator]
    return before, pairs


@WITH_AND_WITHOUT
def test_ids_of_plain_records(workers):
    before, pairs = ids_of([Add()], workers, shuffle=True)
    assert before == []
    assert [[output - 1] for output, _ in pairs] == [ids for _, ids in pairs]


@WITH_AND_WITHOUT
def test_ids_of_filtered_records(workers):
    _, pairs = ids_of([Odd()], workers)
    assert pairs == [(i, [i]) for i in (1, 3, 5, 7, 9, 11)]


@WITH_AND_WITHOUT
def test_ids_of_batches(workers):
    _, pairs = ids_of([g.Batch(5)], workers, shuffle=True)
    assert [len(ids) for _, ids in pairs] == [5, 5, 2]
    assert [output.tolist() for output, _ in pairs] == [ids for _, ids in pairs]


@WITH_AND_WITHOUT
def test_ids_of_filtered_batches(workers):
    _, pairs = ids_of([Odd(), g.Batch(4)], workers)
    assert [ids for _, ids in pairs] == [[1, 3, 5, 7], [9, 11]]


@WITH_AND_WITHOUT
def test_ids_of_flat_mapped_records(workers):
    _, pairs = ids_of([Twice()], workers, records=6)
    assert pairs == [(1, [1]), (2, [2]), (2, [2]), (4, [4]), (5, [5]), (5, [5])]


def test_ids_of_batches_of_splits():
    _, pairs = ids_of([Twice(), Odd(), g.Batch(2)], 0, records=9)
    assert plain(output for output, _ in pairs) == [[1, 5], [5, 7]]
    assert [ids for _, ids in pairs] == [[1, 5], [5, 7]]


@WITH_AND_WITHOUT
def test_ids_of_gathered_batches(workers):
    source = np.arange(12, dtype=np.float32) * 2
    _, pairs = ids_of([g.Batch(5)], workers, source=source, shuffle=True)
    assert [(output / 2).tolist() for output, _ in pairs] == [ids for _, ids in pairs]


def test_changing_returned_ids_has_no_effect():
    iterator = iter(loader([g.Batch(2)]))
    next(iterator)
    iterator.ids()[:] = 9
    assert iterator.ids().tolist() == [0, 1]


@pytest.mark.parametrize(
    "operations",
    [
        [Draw(), g.Batch(3)],
        [Odd(), Draw(), g.Batch(2)],
        [Twice(), Draw()],
        [Draw(), Twice(), Draw(), Odd(), Draw(), g.Batch(3)],
        [Twice(), Draw(), Twice(), Draw()],
    ],
    ids=["one to one", "filter", "flat map", "batched splits", "splits of splits"],
)
def test_replay_returns_next_output(operations):
    made = loader(operations, shuffle=True)
    iterator = iter(made)
    while True:
        state = iterator.get_state()
        expected = next(iterator, None)
        if expected is None:
            break
        np.testing.assert_array_equal(made.replay(state), expected)
        np.testing.assert_array_equal(made.replay(state), expected)
    with pytest.raises(StopIteration):
        made.replay(state)


SPLIT_CHAINS = {
    "draws": [Parts(), Draw()],
    "draws before and after": [Draw(), Parts(), Draw(), Odd(), Draw(), g.Batch(3)],
    "draws of batches": [Parts(), Draw(), g.Batch(3), Draw()],
    "draws of batches only": [Parts(), g.Batch(2), Draw()],
    "draws of batches of batches": [Parts(), g.Batch(2), g.Batch(2), Draw()],
    "splits of splits": [Parts(), Draw(), Parts(3), Draw(), Odd(), g.Batch(4)],
    "splits of batches": [g.Batch(2), Parts(), Draw(), g.Batch(3)],
    "splits of batches of splits": [Parts(), g.Batch(2), Parts(3), Draw()],
    "failing records": [FailsAt(7), Parts(), Draw()],
    "failing splits": [Parts(), FailsAt(1007), Draw(), Draw(), g.Batch(2)],
    "failing batches": [Parts(), g.Batch(2), FailsAt(7), Draw()],
    "old random map": [
        Parts(),
        g.RandomMapOperation(lambda element, rng: element + int(rng.integers(1000))),
        g.Batch(3),
    ],
}


def next_of(iterator):
    """Return the output with its ids, or the error, and the state after it."""
    try:
        output = np.asarray(next(iterator)).tolist()
    except (KeyError, StopIteration) as error:
        return type(error), iterator.get_state()
    return output, iterator.ids().tolist(), iterator.get_state()


@pytest.mark.parametrize("name", SPLIT_CHAINS)
def test_resuming_among_splits_is_exact(name):
    made = loader(SPLIT_CHAINS[name], records=24, shuffle=True)
    iterator = iter(made)
    states, seen = [iterator.get_state()], []
    while not seen or seen[-1][0] is not StopIteration:
        seen.append(next_of(iterator))
        states.append(seen[-1][-1])
    assert len(seen) > 5
    assert any(kind is KeyError for kind, *_ in seen) == ("failing" in name)
    for point, state in enumerate(states[:-1]):
        again = iter(made)
        again.set_state(state)
        assert again.get_state() == state
        assert [next_of(again) for _ in seen[point:]] == seen[point:]


class DiesAt(g.transforms.FlatMap):
    max_fan_out = 1

    def flat_map(self, element):
        if element == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return [element]


@pytest.mark.multiprocess
def test_split_record_that_kills_worker_is_named():
    iterator = iter(loader([DiesAt()], worker_count=1, max_restarts=0))
    assert [next(iterator) for _ in range(5)] == list(range(5))
    with pytest.raises(WorkerDied, match=r"SIGKILL .* on record 5 of stream 0"):
        next(iterator)


@pytest.mark.multiprocess
def test_replay_of_loader_with_workers_returns_next_output():
    made = loader([Add()], worker_count=2)
    iterator = iter(made)
    next(iterator)
    assert made.replay(iterator.get_state()) == next(iterator) == 2


def sha256_of(made):
    total = hashlib.sha256()
    for output in made:
        total.update(str((output.dtype, output.shape)).encode() + output.tobytes())
    return total.hexdigest()


@pytest.mark.claim("Order")
@pytest.mark.multiprocess
@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize(
    "steps", [[Draw()], [Draw(), Odd(), Twice()]], ids=["one to one", "all"]
)
def test_order_does_not_depend_on_worker_count(streams, drop_remainder, steps):
    operations = [*steps, g.Batch(4, drop_remainder=drop_remainder)]
    found = {
        sha256_of(
            loader(
                operations,
                records=101,
                shuffle=True,
                worker_count=workers,
                streams=streams,
            )
        )
        for workers in (0, 1, 2, 3, 5)
    }
    assert len(found) == 1


class Pid(g.MapTransform):
    def map(self, element):
        return element, os.getpid()


class Kept(g.FilterTransform):
    def filter(self, element):
        return element[0] % 5 != 0


class Doubled(g.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element):
        return [element, element]


class SameBlock(g.BlockMap):
    def block_map(self, elements):
        return elements


class SameDrawn(g.RandomMapTransform):
    def random_map(self, element, rng):
        return element


class SameNumbered(g.MapWithIndex):
    def map_with_index(self, index, element):
        return element


def same(element):
    return element


OWNING = {
    "filter": [Kept()],
    "flat map": [Doubled()],
    "block map": [SameBlock()],
    "legacy": [g.operations.MapOperation(same)],
    "random behind a batch": [g.Batch(2), SameDrawn()],
    "index behind a batch": [g.Batch(2), SameNumbered()],
}


def pids_of(made):
    """Return the processes that computed outputs of a loader with `Pid`."""
    return {pid for _, found in made for pid in np.ravel(found).tolist()}


def claim_of_owned(function):
    return pytest.mark.claim(
        "Some steps bind a stream to one worker, so that more workers than "
        "streams do not help."
    )(pytest.mark.multiprocess(function))


@claim_of_owned
@pytest.mark.parametrize("behind", [[], [g.Batch(4)]], ids=["single", "batched"])
@pytest.mark.parametrize("steps", OWNING.values(), ids=OWNING)
def test_stream_of_stateful_steps_belongs_to_one_worker(steps, behind):
    operations = [Pid(), *steps, *behind]
    made = loader(operations, records=400, worker_count=4, streams=2)
    assert len(pids_of(made)) == 2


@claim_of_owned
def test_stream_that_skips_errors_belongs_to_one_worker():
    options = {"worker_count": 4, "streams": 2, "on_error": "skip"}
    made = loader([Pid(), g.Batch(4)], records=400, **options)
    assert len(pids_of(made)) == 2


@claim_of_owned
def test_stream_of_shuffled_groups_belongs_to_one_worker():
    made = g.DataLoader(
        data_source=range(400),
        sampler=g.samplers.GroupShuffleSampler(
            [8] * 50, window=4, num_epochs=1, seed=3
        ),
        operations=[Pid(), g.Batch(4)],
        worker_count=4,
        streams=2,
    )
    assert len(pids_of(made)) == 2


def test_streams_give_order_of_that_many_workers():
    made = loader([g.Batch(2)], records=10, streams=2)
    assert plain(made) == [[0, 2], [1, 3], [4, 6], [5, 7], [8], [9]]


@pytest.mark.claim("A state needs the same worker count")
def test_explicit_streams_must_match_state():
    state = iter(loader(streams=2)).get_state()
    with pytest.raises(StateMismatch, match=r"streams must be 2, .* got 3.* pass 2"):
        iter(loader(streams=3)).set_state(state)
    implied = iter(loader())
    implied.set_state(state)
    assert implied.get_state() == state


def test_map_with_index_gets_the_global_index():
    made = loader([Number()], shard_options=g.ShardOptions(1, 3))
    assert list(made) == [(1, 1), (4, 4), (7, 7), (10, 10)]


def lost_by_grain(library):
    """Return an iterator over 4**8 + 1 shuffled records of `library`."""
    count = 4**8 + 1
    return iter(
        library.DataLoader(
            data_source=library.RangeDataSource(0, count, 1),
            sampler=library.IndexSampler(
                count, library.NoSharding(), shuffle=True, num_epochs=1, seed=3
            ),
            operations=[],
        )
    )


@pytest.mark.claim(
    "A shuffle of n = 4^k + 1 records, k >= 8, loses record n - 1 and repeats "
    "another one"
)
def test_grain_state_of_incomplete_shuffle_is_refused():
    legacy = pytest.importorskip("grain.python")
    theirs, ours = lost_by_grain(legacy), lost_by_grain(g)
    next(theirs)
    with pytest.raises(StateMismatch, match=r"saved by Grain.* loses the last one"):
        ours.set_state(theirs.get_state())
    taken = [next(ours) for _ in range(3)]
    state = ours.get_state()
    assert json.loads(state)["gristmill"] == {"format": 1, "permutation": "complete"}
    again = lost_by_grain(g)
    again.set_state(state)
    assert next(again) == next(ours) not in taken


@WITH_AND_WITHOUT
def test_ids_are_empty_after_restore(workers):
    options = {"worker_count": workers, "streams": 1, "shuffle": True}
    iterator = iter(loader([Odd(), g.Batch(2)], **options))
    next(iterator)
    state, expected = iterator.get_state(), next(iterator).tolist()
    iterator.set_state(state)
    assert iterator.ids().tolist() == []
    assert next(iterator).tolist() == iterator.ids().tolist() == expected


@WITH_AND_WITHOUT
def test_iterators_of_one_loader_are_independent(workers):
    made = loader([Draw()], shuffle=True, worker_count=workers)
    one, two = iter(made), iter(made)
    ahead = [next(one) for _ in range(3)]
    assert [*zip(ahead, [next(two) for _ in range(3)], strict=True)] == [
        (element, element) for element in ahead
    ]
    assert list(one) == list(two)


@WITH_AND_WITHOUT
def test_closed_iterator_continues_at_its_position(workers):
    iterator = iter(loader([Add()], worker_count=workers, streams=1))
    assert [next(iterator), next(iterator)] == [1, 2]
    state = iterator.get_state()
    iterator.close()
    iterator.close()
    assert iterator.get_state() == state
    assert list(iterator) == list(range(3, 13))
    iterator.close()
    assert next(iterator, None) is None


@WITH_AND_WITHOUT
def test_restore_may_change_number_of_streams(workers):
    state = iter(loader(streams=3)).get_state()
    iterator = iter(loader([g.Batch(2)], worker_count=workers))
    next(iterator)
    iterator.set_state(state)
    assert plain(iterator) == [[0, 3], [1, 4], [2, 5], [6, 9], [7, 10], [8, 11]]


@WITH_AND_WITHOUT
def test_start_prefetch_changes_no_output(workers):
    iterator = iter(loader([Add()], worker_count=workers, streams=1))
    state = iterator.get_state()
    iterator.start_prefetch()
    iterator.start_prefetch()
    assert iterator.get_state() == state
    assert list(iterator) == list(range(1, 13))


def test_str_of_iterator_matches_grain():
    iterator = iter(loader())
    next(iterator)
    state = iterator.get_state().decode()
    assert str(iterator) == f"PyGrainDatasetIterator(state={state})"
    assert json.loads(state) == {
        "version": 2,
        "last_seen_indices": {"0": 0},
        "last_worker_index": -1,
        "worker_count": 0,
        "sampler": "IndexSampler(num_records=12, shard_options=NoSharding("
        "shard_index=0, shard_count=1, drop_remainder=False), shuffle=False, "
        "num_epochs=1, seed=3)",
        "data_source": "RangeDataSource(start=0, stop=12, step=1)",
    }


def test_load_makes_sampler_and_loader():
    made = g.load(list(range(5)), num_epochs=2, transformations=[Add()], batch_size=4)
    assert plain(made) == [[1, 2, 3, 4], [5, 1, 2, 3], [4, 5]]
    shuffled = g.load(
        range(5), num_epochs=1, shuffle=True, seed=1, batch_size=2, drop_remainder=True
    )
    assert sorted(map(len, shuffled)) == [2, 2]
    endless = iter(g.load([7, 8], shard_options=g.ShardOptions(1, 2)))
    assert [next(endless) for _ in range(5)] == [8] * 5


def test_private_attributes_of_grain_exist():
    made = loader([Add()], worker_count=2, shard_options=g.ShardOptions(0, 3))
    assert isinstance(made._data_source, g.RangeDataSource)
    assert isinstance(made._sampler, g.IndexSampler)
    assert [type(op) for op in made._operations] == [Add]
    assert made._shard_options == g.ShardOptions(0, 3)
    assert made._read_options == g.ReadOptions()
    assert made._multiprocessing_options is made.multiprocessing_options
    assert (made._local_num_workers, made._global_num_workers) == (2, 6)
    assert loader()._local_num_workers == 1
    assert iter(made)._data_loader is made


def test_old_batch_operation_is_a_batch():
    made = loader([g.python.BatchOperation(batch_size=5, drop_remainder=True)])
    assert [type(op) for op in made._operations] == [transforms.Batch]
    assert [len(batch) for batch in made] == [5, 5]


def test_profiling_logs_wait_at_end(caplog):
    with caplog.at_level(logging.WARNING, "gristmill"):
        assert len(list(loader(enable_profiling=True))) == 12
    [record] = caplog.records
    assert record.message.startswith("12 outputs, waited 0.")


# Reading ahead


# Makes the read of `name` indirect, because a source whose code reads its thread's name
# is always read by threads.
NAME = operator.attrgetter("name")


class Recorded:
    """Records which thread read each record; each read takes `cost_s`.

    It advances a clock of its own, which stands still between reads.
    """

    def __init__(self, cost_s, fails_at=-1):
        self.threads = {}
        self.now = 0.0
        self.cost_s = cost_s
        self.fails_at = fails_at
        self.lock = threading.Lock()

    def __len__(self):
        return 64

    def __getitem__(self, key):
        with self.lock:
            self.threads.setdefault(key, NAME(threading.current_thread()))
            self.now += self.cost_s
        if key == self.fails_at:
            raise OSError("disk on fire")
        return key

    def __repr__(self):
        return "Recorded()"


def recorded(monkeypatch, cost_s, operations=(), fails_at=-1, **options):
    source = Recorded(cost_s, fails_at)

    def clocks():
        return blocked_time.Clocks(source.now, 0.0, 0.0, round(source.now * 1e9))

    monkeypatch.setattr(blocked_time, "clocks", clocks)
    return source, iter(loader(operations, source=source, records=64, **options))


@pytest.mark.claim("Threads named grain-prefetch_<n> read the source from the start")
def test_slow_sources_are_read_by_threads(monkeypatch):
    source, iterator = recorded(monkeypatch, 1e-3)
    assert list(iterator) == list(range(64))
    here = threading.current_thread().name
    readers = [source.threads[key] for key in range(64)]
    # The caller does the first read, which shows that the source is slow.
    assert readers[0] == here
    assert all(name.startswith("gristmill-read") for name in readers[1:])


@pytest.mark.claim("Threads named grain-prefetch_<n> read the source from the start")
def test_fast_sources_are_read_by_the_caller(monkeypatch):
    source, iterator = recorded(monkeypatch, 1e-6, [g.Batch(8)])
    assert len(list(iterator)) == 8
    assert set(source.threads.values()) == {threading.current_thread().name}


@pytest.mark.parametrize(
    "options", [g.ReadOptions(0, 0), g.ReadOptions(0, 5), g.ReadOptions(4, 0)]
)
@pytest.mark.filterwarnings("ignore")
def test_reading_ahead_can_be_turned_off(monkeypatch, options):
    source, iterator = recorded(monkeypatch, 1e-3, read_options=options)
    assert list(iterator) == list(range(64))
    assert set(source.threads.values()) == {threading.current_thread().name}


class Meeting:
    """Each read waits until `parties` threads read at once."""

    def __init__(self, parties, count):
        self.barrier = threading.Barrier(parties)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, key):
        self.barrier.wait(timeout=30)
        return key


def test_start_prefetch_reads_with_many_threads():
    iterator = iter(loader(source=Meeting(4, 12), read_options=g.ReadOptions(4, 12)))
    iterator.start_prefetch()
    assert list(iterator) == list(range(12))


@pytest.mark.parametrize("operations", [[], [Add()], [g.Batch(4)]])
def test_state_is_exact_while_reading_ahead(monkeypatch, operations):
    source, iterator = recorded(monkeypatch, 1e-3, operations)
    for _ in range(3):
        next(iterator)
    state = iterator.get_state()
    expected = plain(iterator)
    iterator.set_state(state)
    assert plain(iterator) == expected
    assert len(source.threads) == 64


@pytest.mark.claim(
    "After an exception in the source, the position is one too low and the "
    "end raises IndexError; without threads, the same record is tried forever"
)
@pytest.mark.parametrize("cost_s", [1e-6, 1e-3], ids=["fast", "slow"])
@pytest.mark.parametrize("where", ["source", "operation"])
def test_failing_record_counts_as_consumed(monkeypatch, cost_s, where):
    operations, fails_at = ([], 9) if where == "source" else ([FailsAt(9)], -1)
    _, iterator = recorded(monkeypatch, cost_s, operations, fails_at)
    assert [next(iterator) for _ in range(9)] == list(range(9))
    kind = OSError if where == "source" else KeyError
    with pytest.raises(kind) as caught:
        next(iterator)
    assert any("record 9" in note for note in caught.value.__notes__)
    state = json.loads(iterator.get_state())
    assert state["last_seen_indices"] == {"0": 9}
    assert list(iterator) == list(range(10, 64))
    assert next(iterator, None) is None


@pytest.mark.parametrize("cost_s", [1e-6, 1e-3], ids=["fast", "slow"])
def test_failing_batch_ends_at_its_failing_record(monkeypatch, cost_s):
    _, iterator = recorded(monkeypatch, cost_s, [FailsAt(9), g.Batch(4)])
    assert plain([next(iterator), next(iterator)]) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(KeyError, match="no such file"):
        next(iterator)
    assert plain([next(iterator)]) == [[10, 11, 12, 13]]


@pytest.mark.multiprocess
def test_failing_record_counts_as_consumed_in_workers():
    iterator = iter(loader([FailsAt(9)], worker_count=2, streams=1))
    assert [next(iterator) for _ in range(9)] == list(range(9))
    with pytest.raises(KeyError):
        next(iterator)
    assert json.loads(iterator.get_state())["last_seen_indices"] == {"0": 9}
    assert list(iterator) == [10, 11]


def test_filtered_records_at_end_are_not_in_last_batch():
    iterator = iter(loader([Odd(), g.Batch(5), Add()], records=13))
    # Record 12 is read for the second batch but filtered out.
    assert next(iterator).tolist() == [2, 4, 6, 8, 10]
    assert next(iterator).tolist() == [12]
    assert iterator.ids().tolist() == [11]
    assert list(iterator) == []
