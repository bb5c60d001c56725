"""Datasets of generators and iterables: epochs, states, errors, closing."""

import collections
import copy
import functools
import itertools
import json
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as g
from gristmill import experimental as ex

from_iterable = g.IterDataset.from_iterable
LENGTH = 23


def numbers():
    yield from range(LENGTH)


class Saved:
    """An iterable with a state, like a Hugging Face dataset."""

    epoch = 0

    def __init__(self, length=LENGTH):
        self.length = length
        self.start = self.at = 0

    def __iter__(self):
        # Begins lazily: states are wrong until the first element is read.
        self.at, self.start = self.start, 0
        while self.at < self.length:
            self.at += 1
            yield self.at - 1 + 100 * self.epoch

    def set_epoch(self, epoch):
        self.epoch = epoch

    def state_dict(self):
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state):
        if state["epoch"] == self.epoch:
            self.start = state["at"]


class SavedIterator:
    """Base of iterators whose state methods have different names."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == LENGTH:
            raise StopIteration
        self.at += 1
        return self.at - 1


class TorchdataIterator(SavedIterator):
    def state_dict(self):
        return vars(self)

    def load_state_dict(self, state):
        vars(self).update(state)


class GrainIterator(SavedIterator):
    def get_state(self):
        return {"next_index": self.at}

    def set_state(self, state):
        self.at = state["next_index"]


class Node(SavedIterator):
    """Has the methods of a torchdata node."""

    def state_dict(self):
        return {"at": self.at}

    def reset(self, state=None):
        self.at = 0 if state is None else state["at"]


class MakesIterators:
    """An iterable without a state, whose iterators have one."""

    def __iter__(self):
        return GrainIterator()


class BothSaved(Saved):
    """An iterable with a state whose iterators also have a state."""

    def __iter__(self):
        made, self.start = TorchdataIterator(), 0
        return made


used = Saved()
next(iter(used))
SAVED = {
    "iterable": Saved(),
    "iterable that was used": used,
    "torchdata iterator": TorchdataIterator(),
    "grain iterator": GrainIterator(),
    "node": Node(),
    "makes iterators": MakesIterators(),
    "both": BothSaved(),
    "function": Saved,
    "function of iterators": GrainIterator,
    "function of nodes": Node,
    "dataset": g.MapDataset.range(LENGTH),
}
REPLAYED = {
    "generator function": numbers,
    "list": list(range(LENGTH)),
    "partial": functools.partial(range, LENGTH),
    "class": functools.partial(Saved, LENGTH),
    "deque": collections.deque(range(LENGTH)),
}
CHAINS = {
    "itself": lambda ds: ds,
    "map": lambda ds: ds.map(lambda x: -x),
    "filter": lambda ds: ds.filter(lambda x: x % 3 != 0),
    "random_map": lambda ds: ds.seed(1).random_map(lambda x, rng: rng.random() + x),
    "map_with_index": lambda ds: ds.map_with_index(lambda i, x: i * x),
    "block_map": lambda ds: ds.block_map(lambda xs: [x + 1 for x in xs], 4),
    "batch": lambda ds: ds.batch(4),
    "rebatch": lambda ds: ex.RebatchIterDataset(ds.batch(4), 3),
    "window": lambda ds: ex.WindowShuffleIterDataset(ds, window_size=5, seed=1),
    "repeat": lambda ds: ex.RepeatIterDataset(ds, 2),
    "cache": lambda ds: ex.RepeatIterDataset(ex.CacheIterDataset(ds), 2),
    "limit": lambda ds: ex.LimitIterDataset(ds, 7),
    "mix": lambda ds: g.IterDataset.mix([ds, ds.map(lambda x: x + 500)], [2, 1]),
    "zip": lambda ds: g.IterDataset.zip([ds, ds.filter(lambda x: x > 3)], strict=False),
    "interleave": lambda ds: ex.InterleaveIterDataset(
        [ds, ds.map(np.negative)], cycle_length=2
    ),
    "thread": lambda ds: ex.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=3),
    "options": lambda ds: ds.with_options(ex.DatasetOptions()),
    "bucket": lambda ds: ds.map(
        lambda x: np.zeros(x % 5 + 1)
    ).bucket_by_sequence_length(len, [3], [2, 2]),
    "pack": lambda ds: ex.FirstFitPackIterDataset(
        ds.map(lambda x: {"x": np.full(x % 3 + 1, x)}),
        length_struct={"x": 4},
        num_packing_bins=2,
    ),
    "split": lambda ds: ex.ConcatThenSplitIterDataset(
        ds.map(lambda x: {"x": np.full(x % 3 + 1, x)}), length_struct={"x": 4}
    ),
    "streams": lambda ds: ds.mp_prefetch(g.MultiprocessingOptions(0), streams=1),
    "epoch": lambda ds: ds.at_epoch(2),
}


def same(one, other):
    np.testing.assert_equal(one, other)


def resumed(ds, stop):
    """Save a state after `stop` elements; return the elements after restoring it."""
    first = iter(ds)
    for _ in itertools.islice(first, stop):
        pass
    state = json.loads(json.dumps(first.get_state()))
    second = iter(ds)
    second.set_state(state)
    same(second.get_state(), first.get_state())
    rest = list(second)
    same(list(first), rest)
    return rest


@pytest.mark.parametrize("name", SAVED)
def test_iterable_with_a_state_resumes_exactly(name):
    ds = from_iterable(SAVED[name])
    assert list(ds) == list(ds) == list(range(LENGTH))
    for stop in range(LENGTH + 2):
        assert resumed(ds, stop) == list(range(LENGTH))[stop:]
    ex.assert_equal_output_after_checkpoint(ds)


@pytest.mark.parametrize("name", REPLAYED)
def test_replayed_iterable_resumes_exactly(name):
    ds = from_iterable(REPLAYED[name], replay=True)
    assert list(ds) == list(ds) == list(range(LENGTH))
    for stop in range(LENGTH + 2):
        assert resumed(ds, stop) == list(range(LENGTH))[stop:]


@pytest.mark.parametrize("chain", CHAINS)
@settings(max_examples=6, deadline=None)
@given(stop=st.integers(0, 50), how=st.sampled_from(["saved", "iterator", "replayed"]))
def test_chain_over_an_iterable_resumes_exactly(chain, stop, how):
    source = {"saved": Saved(), "iterator": MakesIterators(), "replayed": numbers}[how]
    ds = CHAINS[chain](from_iterable(source, replay=how == "replayed"))
    expected = list(ds)
    same(resumed(ds, stop), expected[stop:])


@pytest.mark.parametrize("chain", CHAINS)
def test_chain_without_state_iterates_and_rejects_states(chain):
    ds = CHAINS[chain](from_iterable(numbers))
    expected = CHAINS[chain](g.MapDataset.range(LENGTH).to_iter_dataset())
    if chain != "epoch":
        same(list(ds), list(expected))
    iterator = iter(ds)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"numbers has no state.*state_dict\(\)"):
            iterator.get_state()
        next(iterator)


def test_measured_chain_without_state_rejects_states():
    mode = ex.ExecutionTrackingMode.STAGE_TIMING
    ds = from_iterable(numbers).batch(2)
    iterator = iter(ds.with_options(ex.DatasetOptions(execution_tracking_mode=mode)))
    assert next(iterator).tolist() == [0, 1]
    with pytest.raises(TypeError, match="numbers has no state"):
        iterator.get_state()


@pytest.mark.parametrize("begin", [iter, lambda elastic: elastic])
def test_elastic_batches_without_state_reject_states(begin):
    ds = from_iterable(numbers)
    elastic = begin(ex.ElasticIterator(ds, 2, g.NoSharding()))
    assert next(elastic).tolist() == [0, 1]
    with pytest.raises(TypeError, match="numbers has no state"):
        elastic.get_state()
    assert next(elastic).tolist() == [2, 3]


def test_set_state_without_state_is_rejected():
    marked = {"elements_read": 2, "ended": False, "no_state_of": "numbers"}
    iterator = iter(from_iterable(numbers))
    with pytest.raises(TypeError, match=r"numbers has no state.*replay=True"):
        iterator.set_state(marked)
    assert next(iterator) == 0


def test_lazily_made_datasets_without_state_reject_states():
    made = g.MapDataset.range(2).map(lambda _: from_iterable(numbers))
    ds = ex.InterleaveIterDataset(made, cycle_length=2).batch(2)
    iterator = iter(ds)
    assert next(iterator).tolist() == [0, 0]
    with pytest.raises(TypeError, match="numbers has no state"):
        iterator.get_state()


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"elements_read": 3, "ended": False}, "saved with replay=True"),
        ({"elements_read": 3, "ended": False, "iterator": {}}, "does not have.*Saved"),
        ({"elements_read": -1, "ended": False}, "elements_read -1"),
        ({"elements_read": 1, "ended": 5}, "ended 5"),
        ({"next_index": 3}, "next_index"),
    ],
)
def test_state_of_another_iterable_is_rejected(state, text):
    iterator = iter(from_iterable(Saved()))
    next(iterator)
    with pytest.raises(g.StateMismatch, match=text):
        iterator.set_state(state)
    assert list(iterator) == list(range(1, LENGTH))


def test_replay_with_fewer_elements_is_rejected():
    iterator = iter(from_iterable([1, 2], replay=True))
    with pytest.raises(g.StateMismatch, match="after element 3, but there are only 2"):
        iterator.set_state({"elements_read": 3, "ended": False})


def test_state_is_a_copy():
    iterator = iter(from_iterable(TorchdataIterator()))
    next(iterator)
    state = iterator.get_state()
    before = copy.deepcopy(state)
    next(iterator)
    assert state == before


def test_two_iterators_over_one_iterable_are_independent():
    ds = from_iterable(Saved())
    first, second = iter(ds), iter(ds)
    assert [next(first), next(first), next(second)] == [0, 1, 0]
    third = iter(ds)
    third.set_state(first.get_state())
    assert [next(third), next(second), next(first)] == [2, 1, 2]


def test_epoch_is_set_on_a_copy_of_the_iterable():
    source = Saved(3)
    ds = from_iterable(source)
    assert list(ds.at_epoch(2)) == [200, 201, 202]
    assert list(ds) == [0, 1, 2]
    source.set_epoch(1)
    iterator = iter(ds)
    assert next(iterator) == 100
    state = iterator.get_state()
    # The restarted program has not set the epoch yet.
    again = iter(from_iterable(Saved(3)))
    again.set_state(state)
    assert list(again) == [101, 102]


def test_generator_function_is_called_for_each_iterator():
    calls = []

    def read():
        calls.append(1)
        yield from "ab"

    ds = from_iterable(read)
    assert not calls
    iter(ds)
    assert not calls
    assert list(ex.RepeatIterDataset(ds, 3)) == list("ababab")
    assert len(calls) == 3


ONCE = {
    "generator": (numbers(), r"got a generator.*from_iterable\(numbers, not numbers\("),
    "genexpr": ((x for x in "ab"), r"only once.*from_iterable\(lambda: generator\("),
    "map": (map(str, [1]), r"got a map.*from_iterable\(lambda: map\("),
    "iterator": (iter([1]), "got a list_iterator"),
}


@pytest.mark.parametrize("name", ONCE)
def test_one_shot_iterator_is_rejected(name):
    source, text = ONCE[name]
    with pytest.raises(TypeError, match=f"^IterDataset.from_iterable needs.*{text}"):
        from_iterable(source)


def test_replay_of_an_iterator_is_rejected():
    with pytest.raises(TypeError, match=r"got a TorchdataIterator.*only once"):
        from_iterable(TorchdataIterator(), replay=True)


def test_open_file_is_rejected_but_its_open_method_works(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("a\nb\n")
    with (
        open(path) as file,
        pytest.raises(TypeError, match=r"TextIOWrapper.*lambda: open\("),
    ):
        from_iterable(file)
    ds = from_iterable(path.open, replay=True).map(str.strip)
    assert list(ds) == ["a", "b"]
    assert resumed(ds, 1) == ["b"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("words.txt", r"got 'words.txt'.*lambda: open\(path\)"),
        (b"ab", "got b'ab'"),
        (5, "got int"),
        (None, "got NoneType"),
        (lambda path: path, r"needs path. Pass functools.partial\(.*path=\.\.\."),
        (lambda shard_index: [], "needs shard_index"),
        (lambda shard_index, shard_count, x: [], "needs x"),
    ],
)
def test_non_iterable_is_rejected(source, text):
    with pytest.raises(TypeError, match=text):
        from_iterable(source)


def test_replay_must_be_a_bool():
    with pytest.raises(TypeError, match="replay"):
        from_iterable(numbers, replay="yes")


@pytest.mark.parametrize("function", [lambda: 3, lambda: None])
def test_function_returning_non_iterable_is_named(function):
    with pytest.raises(TypeError, match=r"needs an iterable.*<lambda>.* returned "):
        next(iter(from_iterable(function)))


def test_uncopyable_iterable_error_advises_a_function():
    source = Saved()
    source.lock = threading.Lock()
    with pytest.raises(TypeError, match=r"copy of the Saved.*cannot pickle.*lambda"):
        next(iter(from_iterable(source)))


def test_closing_runs_finally_of_the_generator():
    closed = []

    def read():
        try:
            yield from range(5)
        finally:
            closed.append(threading.current_thread())

    iterator = iter(from_iterable(read).map(str).batch(2))
    next(iterator)
    assert not closed
    iterator.close()
    assert closed == [threading.current_thread()]
    with pytest.raises(ValueError, match="closed iterator"):
        next(iterator)


def test_set_state_closes_previous_generator():
    closed = []

    def read():
        try:
            yield from range(5)
        finally:
            closed.append(1)

    iterator = iter(from_iterable(read, replay=True))
    next(iterator)
    iterator.set_state({"elements_read": 2, "ended": False})
    assert closed == [1]
    assert list(iterator) == [2, 3, 4]


def test_error_of_generator_is_raised_by_next():
    def read():
        yield 1
        raise OSError("disk")

    iterator = iter(from_iterable(read))
    assert next(iterator) == 1
    with pytest.raises(OSError, match="disk"):
        next(iterator)
    assert list(iterator) == []


def test_chain_without_state_can_report():
    ds = from_iterable(lambda: itertools.repeat(1, 10**5)).batch(10)
    iterator = iter(ds)
    for _ in range(50):
        next(iterator)
    assert iterator.report(verify=True, seconds=0.01).outputs
    assert next(iterator).tolist() == [1] * 10


@pytest.mark.parametrize("make", [g.load, g.MapDataset.source])
@pytest.mark.parametrize("source", [numbers(), {1, 2}, map(str, [1]), Saved()])
def test_unindexed_source_error_names_from_iterable(make, source):
    with pytest.raises(TypeError, match=r"IterDataset.from_iterable\(\.\.\.\)"):
        make(source)


def test_loader_of_iterable_error_names_from_iterable():
    with pytest.raises(TypeError, match=r"IterDataset.from_iterable\(\.\.\.\)"):
        g.DataLoader(data_source=Saved(), sampler=g.IndexSampler(3))
