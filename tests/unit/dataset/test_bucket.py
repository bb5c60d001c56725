"""Batches of similar lengths: reproducible from any state, with and without workers.

tests/differential/test_buckets.py compares the batches with tf.data.
"""

import contextlib
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as g
from gristmill.batching import make_batch
from gristmill.errors import StateMismatch
from gristmill.experimental import ShapeDtypeStruct, get_element_spec

ASK = g.ReadOptions(0, 0)


def rows(lengths):
    """Return rows of the given lengths, each filled with its number."""
    return [np.full(length, number) for number, length in enumerate(lengths)]


def stream(lengths):
    return g.MapDataset.source(rows(lengths)).to_iter_dataset(ASK)


def plain(batches):
    return [batch.tolist() for batch in batches]


MANY = np.random.default_rng(3).integers(0, 30, 300).tolist()
# The last bucket gets few rows, so some of them wait for many batches.
RARE = [29 if number % 97 == 5 else number % 7 for number in range(300)]


def bucketed(lengths, **how):
    return stream(lengths).bucket_by_sequence_length(
        len, [4, 10, 29], [8, 6, 4, 3], **how
    )


@pytest.mark.parametrize("lengths", [MANY, RARE], ids=["many", "rare"])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_every_state_resumes_exactly(lengths, drop_remainder):
    ds = bucketed(lengths, drop_remainder=drop_remainder)
    expected = plain(ds)
    assert len(expected) > 40
    iterator = iter(ds)
    for position in range(len(expected) + 1):
        again = iter(ds)
        state = iterator.get_state()
        again.set_state(json.loads(json.dumps(state)))
        assert again.get_state() == state
        assert plain(itertools.islice(again, 20)) == expected[position : position + 20]
        next(iterator, None)


@given(
    lengths=st.lists(st.integers(0, 12), max_size=60),
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    hops=st.lists(st.integers(0, 6), max_size=6),
)
def test_repeated_resuming_yields_the_whole_stream(lengths, sizes, hops):
    ds = stream(lengths).bucket_by_sequence_length(len, [3, 9], sizes)
    expected, found = plain(ds), []
    iterator = iter(ds)
    for hop in hops:
        found += plain(itertools.islice(iterator, hop))
        state = iterator.get_state()
        iterator = iter(ds)
        iterator.set_state(state)
    assert found + plain(iterator) == expected


def test_only_waiting_elements_are_read_again():
    asked = []

    def noted(row):
        asked.append(len(row))
        return row

    lengths = [9, *[1] * 1000, 9]
    ds = stream(lengths).map(noted).bucket_by_sequence_length(len, [5], [10, 2])
    iterator = iter(ds)
    for _ in range(90):
        next(iterator)
    state = iterator.get_state()
    assert json.loads(state["waiting"]) == [[0, {"next_index": 0}, [0]]]
    again = iter(ds)
    asked.clear()
    again.set_state(state)
    assert asked == [9]
    assert len(plain(again)) == 11


class Odd(g.MapTransform):
    def map(self, row):
        if len(row) == 3:
            raise KeyError("no such row")
        return row


def outcomes(iterator):
    """Return batches, with the names of errors in the places of failed ones."""
    found = []
    while True:
        try:
            found.append(next(iterator).tolist())
        except StopIteration:
            return found
        except Exception as error:
            found.append(type(error).__name__)


def test_states_skip_failed_elements():
    ds = stream([1, 3, 2, 6, 3, 2, 1, 5, 9, 3, 1])
    ds = ds.map(Odd()).bucket_by_sequence_length(len, [4, 8], [3, 2, 5])
    expected = outcomes(iter(ds))
    assert expected.count("KeyError") == 3 and len(expected) == 7
    iterator = iter(ds)
    for position in range(len(expected)):
        again = iter(ds)
        again.set_state(iterator.get_state())
        assert outcomes(again) == expected[position:]
        with contextlib.suppress(KeyError):
            next(iterator)


@pytest.mark.multiprocess
def test_workers_match_streams_and_resume():
    def made(workers):
        options = g.MultiprocessingOptions(num_workers=workers)
        return bucketed(MANY).mp_prefetch(options, streams=2)

    expected = plain(made(0))
    numbers = [row[0] for batch in expected for row in batch if row]
    assert {*numbers} == {n for n, length in enumerate(MANY) if length}
    iterator = iter(made(2))
    assert plain(itertools.islice(iterator, 9)) == expected[:9]
    state = iterator.get_state()
    assert plain(iterator) == expected[9:]
    for workers in (0, 2):
        again = iter(made(workers))
        again.set_state(state)
        assert plain(again) == expected[9:]


@pytest.mark.multiprocess
def test_buckets_after_workers_resume():
    options = g.MultiprocessingOptions(num_workers=2)
    ds = stream(RARE).mp_prefetch(options)
    ds = ds.bucket_by_sequence_length(len, [4, 10], [8, 6, 3])
    iterator = iter(ds)
    first = plain(itertools.islice(iterator, 9))
    state = iterator.get_state()
    again = iter(ds)
    again.set_state(state)
    rest = plain(again)
    assert rest == plain(iterator)
    assert sum(map(len, first + rest)) == 300


@given(lengths=st.lists(st.integers(0, 9), max_size=50), max_tokens=st.integers(9, 40))
def test_max_tokens_is_never_exceeded(lengths, max_tokens):
    ds = stream(lengths).bucket_by_sequence_length(
        len, [3, 6, 10], max_tokens=max_tokens, pad_to_bucket_boundary=True
    )
    batches = list(ds)
    assert all(batch.size <= max_tokens for batch in batches)
    assert sum(map(len, batches)) == len(lengths)
    # Only batches at the end may be smaller than their bucket allows.
    sizes = {2: max_tokens // 2, 5: max_tokens // 5, 9: max_tokens // 9}
    short = [batch for batch in batches if len(batch) < sizes[batch.shape[1]]]
    assert [*map(id, short)] == [*map(id, batches[len(batches) - len(short) :])]


def test_map_dataset_is_iterated_in_order():
    ds = g.MapDataset.source(rows([1, 4, 2, 5])).shuffle(1)
    expected = ds.to_iter_dataset().bucket_by_sequence_length(len, [3], [2, 2])
    found = ds.bucket_by_sequence_length(len, [3], [2, 2])
    assert plain(found) == plain(expected)
    assert isinstance(found, g.IterDataset)


def test_batch_fn_receives_lists():
    ds = stream([1, 4, 2, 5, 1])
    listed = ds.bucket_by_sequence_length(len, [3], [2, 2], batch_fn=len)
    assert list(listed) == [2, 2, 1]
    stacked = ds.bucket_by_sequence_length(len, [3], [1, 1], batch_fn=make_batch)
    assert [batch.shape for batch in stacked] == [(1, n) for n in (1, 4, 2, 5, 1)]


class Tokens(g.MapTransform):
    def map(self, element):
        return {"x": np.zeros(element, np.int32)}

    def output_spec(self, input_spec):
        return {"x": ShapeDtypeStruct((None,), np.dtype(np.int32))}


class Numbers(g.IterDataset):
    _element_spec = None

    def __iter__(self):
        raise AssertionError("nothing is read")


def test_element_spec_needs_no_reading():
    ds = Numbers().map(Tokens())
    buckets = ds.bucket_by_sequence_length(len, [3], [2, 2])
    expected = {"x": ShapeDtypeStruct((None, None), np.dtype(np.int32))}
    assert get_element_spec(buckets) == expected
    with pytest.raises(NotImplementedError, match="BucketIterDataset"):
        get_element_spec(ds.bucket_by_sequence_length(len, [3], [2, 2], batch_fn=list))


def test_repr_contains_the_buckets():
    ds = stream([1]).bucket_by_sequence_length(len, [3, 9], max_tokens=20)
    expected = "(boundaries=(3, 9), sizes=(10, 2), drop_remainder=False)"
    assert f"{ds}" == "BucketIterDataset" + expected
    assert str(iter(ds)) == "BucketDatasetIterator" + expected


@pytest.mark.parametrize("how", [{"max_tokens": 20}, {"pad_to_bucket_boundary": True}])
def test_too_long_element_raises_and_is_dropped(how):
    sizes = None if "max_tokens" in how else [2, 2, 2]
    ds = stream([1, 9, 1]).bucket_by_sequence_length(len, [4, 9], sizes, **how)
    iterator = iter(ds)
    text = "must be less than the last of bucket_boundaries, 9, got 9"
    with pytest.raises(ValueError, match=text) as raised:
        next(iterator)
    assert "record 1 (index 1)" in "\n".join(raised.value.__notes__)
    assert [batch[:, 0].tolist() for batch in iterator] == [[0, 2]]


@pytest.mark.parametrize(
    ("length", "error", "text"),
    [
        (2.5, TypeError, "length of an element must be an int, got float"),
        (-1, ValueError, "must be at least 0, got -1"),
    ],
)
def test_invalid_length_is_named(length, error, text):
    ds = stream([1]).bucket_by_sequence_length(lambda _: length, [4], [2, 2])
    with pytest.raises(error, match=text):
        next(iter(ds))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"element_length_func": 3}, TypeError, "must be a function, got int"),
        ({"bucket_boundaries": 3}, TypeError, "must be a sequence of ints, got int"),
        ({"bucket_boundaries": [4, 4]}, ValueError, r"must ascend, got \[4, 4\]"),
        ({"bucket_boundaries": [0]}, ValueError, "must be at least 1, got 0"),
        ({"bucket_boundaries": [1.5]}, TypeError, "must be an int, got float"),
        ({"bucket_batch_sizes": [1]}, ValueError, "got 1 sizes and 1 boundaries"),
        ({"bucket_batch_sizes": [1, 0]}, ValueError, "must be at least 1, got 0"),
        ({"bucket_batch_sizes": None}, ValueError, "got neither"),
        ({"max_tokens": 9}, ValueError, "got both"),
        ({"drop_remainder": 3}, TypeError, "must be True or False, got int"),
        ({"batch_fn": 3}, TypeError, "batch_fn must be a function, got int"),
        ({"batch_fn": list, "padding_values": 1}, ValueError, "combined with padding"),
    ],
)
def test_invalid_arguments_are_named(arguments, error, text):
    usual = {
        "element_length_func": len,
        "bucket_boundaries": [4],
        "bucket_batch_sizes": [2, 2],
    }
    with pytest.raises(error, match=text):
        stream([1]).bucket_by_sequence_length(**usual | arguments)


def test_max_tokens_must_fit_longest_element():
    buckets = stream([1]).bucket_by_sequence_length
    with pytest.raises(ValueError, match=r"max_tokens must be at least 8, .* got 7"):
        buckets(len, [4, 9], max_tokens=7)
    with pytest.raises(ValueError, match="max_tokens needs bucket_boundaries"):
        buckets(len, [], max_tokens=7)


def taken_from(lengths, count):
    iterator = iter(bucketed(lengths))
    for _ in range(count):
        next(iterator)
    return iterator.get_state()


@pytest.mark.parametrize(
    ("waiting", "text"),
    [
        ("no json", "expected a list"),
        ('[[0, {"next_index": 0}]]', "expected a list of 3"),
        ('[[0, {"x": 0}, [1]]]', "expected a dict with 'next_index'"),
        ('[[0, {"next_index": 0}, 3]]', "expected lists"),
        ('[[0, {"next_index": 0}, [2, 1]]]', "expected less than 16"),
        ('[[0, {"next_index": 0}, [16]]]', "expected less than 16"),
        ('[[8, {"next_index": 8}, [1]], [0, {"next_index": 0}, [1]]]', "out of order"),
        ('[[9000, {"next_index": 0}, [1]]]', "expected at least 9002"),
    ],
)
def test_malformed_states_are_rejected(waiting, text):
    state = {**taken_from(MANY, 5), "waiting": waiting}
    iterator = iter(bucketed(MANY))
    before = iterator.get_state()
    with pytest.raises(StateMismatch, match=text):
        iterator.set_state(state)
    assert iterator.get_state() == before


def test_rejected_state_of_other_data_changes_nothing():
    waiting = '[[0, {"next_index": 0}, [0, 1, 2, 3, 4, 5, 6, 7]]]'
    state = {**taken_from(MANY, 5), "waiting": waiting}
    iterator = iter(bucketed([1] * 40))
    next(iterator)
    before = iterator.get_state()
    with pytest.raises(StateMismatch, match=r"at least 8 elements.* in bucket 0"):
        iterator.set_state(state)
    short = iter(bucketed([1] * 40))
    with pytest.raises(StateMismatch, match="element 6 does not exist"):
        short.set_state({**state, "waiting": '[[4, {"next_index": 38}, [1, 2]]]'})
    assert iterator.get_state() == before
    assert len(list(iterator)) == 4


class Marked(g.IterDataset):
    """Returns rows; its iterators save their position in a user-defined form."""

    def __init__(self, mark):
        super().__init__()
        self.mark = mark

    def __iter__(self):
        return MarkedIterator(self.mark)


class MarkedIterator(g.DatasetIterator):
    def __init__(self, mark):
        super().__init__()
        self.mark, self.place = mark, 0

    def __next__(self):
        self.place += 1
        return np.full(self.place % 5, self.place)

    def get_state(self):
        return {"place": self.mark(self.place)}

    def set_state(self, state):
        (self.place,) = np.asarray(state["place"]).ravel().tolist()


@pytest.mark.parametrize(
    "mark", [np.int64, np.asarray, lambda place: (place,), lambda place: {place: 0}]
)
def test_get_state_rejects_parent_states_changed_by_json(mark):
    buckets = Marked(mark).bucket_by_sequence_length(len, [2], [3, 3])
    iterator = iter(buckets)
    next(iterator)
    with pytest.raises(TypeError, match=r"states of .* as JSON.*'place'"):
        iterator.get_state()


def test_json_states_of_user_iterators_resume():
    buckets = Marked(lambda place: [place]).bucket_by_sequence_length(len, [2], [3, 3])
    iterator = iter(buckets)
    next(iterator)
    state = iterator.get_state()
    expected = plain(itertools.islice(iterator, 5))
    other = iter(buckets)
    other.set_state(state)
    assert plain(itertools.islice(other, 5)) == expected
