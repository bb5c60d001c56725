"""A DataLoader batches elements of similar lengths, like chains of datasets."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as grain
from gristmill.errors import StateMismatch
from gristmill.transforms import BucketBatch

COUNT = 60
LENGTHS = np.random.default_rng(0).integers(0, 12, COUNT).tolist()
SOURCE = [np.full(length + 1, number) for number, length in enumerate(LENGTHS)]
BUCKETS = BucketBatch(len, [4, 8], [4, 3, 2], padding_values=-1)


class NotFives(grain.transforms.Filter):
    def filter(self, element):
        return element[0] % 5 != 0


class Refusing(grain.transforms.Map):
    def map(self, element):
        if element[0] % 7 == 3:
            raise ValueError("bad")
        return element


class Added(grain.transforms.RandomMap):
    def random_map(self, element, rng):
        return element + rng.integers(1, 9) * 1000


class Sums(grain.transforms.Map):
    def map(self, batch):
        return batch.sum()


def loader(operations=(), buckets=BUCKETS, behind=(), *, shuffle=True, **options):
    return grain.DataLoader(
        data_source=SOURCE,
        sampler=grain.IndexSampler(COUNT, shuffle=shuffle, seed=2, num_epochs=2),
        operations=[*operations, buckets, *behind],
        **options,
    )


def plain(batches):
    return [batch.tolist() for batch in batches]


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    drop_remainder=st.booleans(),
    to_boundary=st.booleans(),
    filters=st.booleans(),
)
def test_batches_match_a_chain(sizes, drop_remainder, to_boundary, filters):
    # Padding to boundaries needs a boundary above every length.
    buckets = BucketBatch(
        len,
        [4, 8, 14] if to_boundary else [4, 8],
        [*sizes, 1] if to_boundary else sizes,
        padding_values=-1,
        pad_to_bucket_boundary=to_boundary,
        drop_remainder=drop_remainder,
    )
    steps = [NotFives()] if filters else []
    found = loader(steps, buckets, shuffle=False)
    chain = grain.MapDataset.source(SOURCE).repeat(2).to_iter_dataset()
    assert plain(found) == plain(chain.apply([*steps, buckets]))


@pytest.mark.multiprocess
@pytest.mark.parametrize("streams", [1, 3])
def test_workers_make_the_same_batches(streams):
    steps = [NotFives(), Added()]
    expected = plain(loader(steps, streams=streams))
    assert plain(loader(steps, streams=streams, worker_count=2)) == expected


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_loader_resumes_after_each_batch(workers):
    steps = [NotFives(), Added()]
    reference = loader(steps, streams=2)
    expected = plain(reference)
    iterator = iter(loader(steps, streams=2, worker_count=workers))
    states = [iterator.get_state()]
    for _ in iterator:
        states.append(iterator.get_state())
    for number in range(0, len(expected), 4):
        restored = iter(reference)
        restored.set_state(states[number])
        assert plain(restored) == expected[number:]
        assert reference.replay(states[number]).tolist() == expected[number]
    restored = iter(loader(steps, streams=2, worker_count=workers))
    restored.set_state(states[5])
    assert plain(restored) == expected[5:]


def test_ids_are_the_keys_of_the_records():
    iterator = iter(loader([NotFives()]))
    for batch in iterator:
        assert iterator.ids().tolist() == batch[:, 0].tolist()


def test_steps_and_batches_follow():
    batches = loader(shuffle=False)
    sums = loader(behind=[Sums(), grain.transforms.Batch(4)], shuffle=False)
    expected = [int(batch.sum()) for batch in batches]
    assert np.concatenate(list(sums)).tolist() == expected


@pytest.mark.multiprocess
@pytest.mark.parametrize("on_error", ["skip", "substitute"])
def test_bad_records_are_skipped_or_substituted(on_error):
    made = [
        loader([Refusing()], on_error=on_error, streams=2, worker_count=workers)
        for workers in (0, 2)
    ]
    iterator = iter(made[0])
    found = plain(iterator)
    assert plain(made[1]) == found
    numbers = [row[0] for batch in found for row in batch]
    bad = [number for number in range(COUNT) if number % 7 == 3]
    assert not {*numbers} & {*bad}
    assert iterator.errors.count == 2 * len(bad)
    if on_error == "substitute":
        assert len(numbers) == 2 * COUNT


def test_failing_element_drops_no_other():
    iterator = iter(loader([Refusing()], shuffle=False))
    numbers, failures = [], 0
    while True:
        try:
            numbers += next(iterator)[:, 0].tolist()
        except StopIteration:
            break
        except ValueError:
            failures += 1
    good = [number for number in range(COUNT) if number % 7 != 3]
    assert sorted(numbers) == sorted(good * 2)
    assert failures == 2 * (COUNT - len(good))


def test_state_contains_the_waiting_records():
    iterator = iter(loader(shuffle=False))
    given = until_some_wait(iterator)
    state = json.loads(iterator.get_state())
    consumed = state["last_seen_indices"]["0"] + 1
    (waiting,) = state["gristmill"]["waiting"]
    assert waiting
    assert sorted([*waiting, *given]) == list(range(consumed))


def until_some_wait(iterator):
    """Take batches until elements wait; return the records of the batches."""
    given = []
    while b"waiting" not in iterator.get_state():
        given += next(iterator)[:, 0].tolist()
    return given


def changed(state, waiting):
    content = json.loads(state)
    content["gristmill"]["waiting"] = waiting
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    "waiting", [[[0, 0]], [[1, 0]], [[99]], [["a"]], [[]] * 2, [list(range(30))], 5]
)
def test_states_of_other_pipelines_are_rejected(waiting):
    iterator = iter(loader())
    until_some_wait(iterator)
    state = changed(iterator.get_state(), waiting)
    with pytest.raises(StateMismatch):
        iterator.set_state(state)


def test_loader_without_buckets_rejects_the_state():
    iterator = iter(loader())
    until_some_wait(iterator)
    other = iter(loader(buckets=grain.transforms.Batch(4)))
    with pytest.raises(StateMismatch, match=r"'waiting' .* BucketBatch"):
        other.set_state(iterator.get_state())


def test_changed_data_raise_when_the_state_is_used():
    iterator = iter(loader([NotFives()], shuffle=False))
    until_some_wait(iterator)
    state = changed(iterator.get_state(), [[0]])
    iterator.set_state(state)
    with pytest.raises(StateMismatch, match=r"Record 0 .* got 0"):
        next(iterator)


@pytest.mark.parametrize(
    ("operations", "behind"),
    [
        ([grain.transforms.Batch(2)], []),
        ([], [BUCKETS]),
        ([], [Added()]),
        ([lambda records: records], []),
    ],
)
def test_incompatible_operations_are_rejected(operations, behind):
    with pytest.raises(ValueError, match="BucketBatch of operations must be the first"):
        loader(operations, behind=behind)


def test_failing_length_function_names_the_record():
    made = loader(buckets=BucketBatch(lambda element: "long", [4], [2, 2]))
    with pytest.raises(TypeError, match="length of an element") as raised:
        next(iter(made))
    assert "while BucketBatch measured record" in raised.value.__notes__[-1]


def test_length_is_unknown():
    with pytest.raises(TypeError, match="BucketBatch may give more or fewer"):
        len(loader())


def test_map_dataset_rejects_bucket_batch():
    with pytest.raises(TypeError, match="Call to_iter_dataset"):
        grain.MapDataset.source(SOURCE).apply(BUCKETS)


def test_batch_sizes_above_position_capacity_are_rejected():
    with pytest.raises(ValueError, match="sum up to at most 65535, got 70000"):
        loader(buckets=BucketBatch(len, [4], [30000, 40000]))


class Failing:
    """Measures elements; fails once if `error` is set."""

    def __init__(self):
        self.error = None

    def __call__(self, element):
        error, self.error = self.error, None
        if error is not None:
            raise error
        return len(element)


@pytest.mark.parametrize("error", [OSError("busy"), KeyboardInterrupt()])
def test_failure_while_rereading_loses_no_element(error):
    length = Failing()
    made = loader(buckets=BucketBatch(length, [4, 8], [4, 3, 2], padding_values=-1))
    iterator = iter(made)
    until_some_wait(iterator)
    state = iterator.get_state()
    expected = plain(iterator)
    iterator.set_state(state)
    length.error = error
    with pytest.raises(type(error)):
        next(iterator)
    assert iterator.get_state() == state
    assert plain(iterator) == expected


@pytest.mark.parametrize("error", [OSError("busy"), KeyboardInterrupt()])
def test_failing_length_drops_at_most_one_element(error):
    length = Failing()
    made = loader(buckets=BucketBatch(length, [4, 8], [4, 3, 2]), shuffle=False)
    iterator = iter(made)
    numbers = next(iterator)[:, 0].tolist()
    length.error = error
    with pytest.raises(type(error)):
        next(iterator)
    for batch in iterator:
        numbers += batch[:, 0].tolist()
    lost = 0 if isinstance(error, KeyboardInterrupt) else 1
    assert len(numbers) == 2 * COUNT - lost


def test_state_with_too_many_waiting_elements_is_rejected():
    iterator = iter(loader(buckets=BucketBatch(len, [4, 8], [9, 9, 9])))
    while True:
        next(iterator)
        state = json.loads(iterator.get_state())
        if len(state.get("gristmill", {"waiting": [[]]})["waiting"][0]) == 13:
            break
    other = iter(loader(buckets=BucketBatch(len, [4, 8], [5, 5, 5])))
    other.set_state(json.dumps(state).encode())
    with pytest.raises(StateMismatch, match="wait in bucket"):
        next(other)


class Cannot:
    """Cannot prepare a worker."""

    def __call__(self, worker, workers):
        raise OSError("no service")


@pytest.mark.multiprocess
def test_worker_init_fn_errors_are_raised():
    made = loader(on_error="skip", worker_count=1, worker_init_fn=Cannot())
    with pytest.raises(OSError, match="no service"):
        next(iter(made))
