"""Tests of StopIteration and IndexError raised by user code.

StopIteration from a source or sampler ends its stream. Any other exception from them is
an error, as is every exception from a step.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as g

RECORDS = 60
STOP = 20


class Source:
    """Returns its indices, and raises an error at one of them."""

    def __init__(self, error=StopIteration, at=STOP, length=RECORDS):
        self._error = error
        self._at = at
        self._length = length

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        if index == self._at:
            raise self._error(f"user code at {index}")
        if index > self._at + 4096:
            raise AssertionError("nobody needs this record")
        return np.int64(index)


class Short(Source):
    """Raises the error at every index from STOP on, although its length is larger."""

    def __getitem__(self, index):
        return super().__getitem__(index if index > STOP + 4096 else min(index, STOP))


class Together(Source):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Sampler:
    """Gives the numbers of the records in order."""

    def __init__(self, error=StopIteration, at=STOP):
        self._error = error
        self._at = at

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        if index == self._at:
            raise self._error(f"user code at {index}")
        return g.RecordMetadata(index=index, record_key=index)


class Raising:
    """Raises an error for one element, or for a batch that contains it."""

    def __init__(self, error, at=STOP):
        self._error = error
        self._at = at

    def _look(self, element):
        if self._at in np.ravel(element):
            raise self._error("user code")
        return element


class Map(Raising, g.transforms.Map):
    def map(self, element):
        return self._look(element)


class RandomMap(Raising, g.transforms.RandomMap):
    def random_map(self, element, rng):
        return self._look(element)


class WithIndex(Raising, g.transforms.MapWithIndex):
    def map_with_index(self, index, element):
        return self._look(element)


class Filter(Raising, g.transforms.Filter):
    def filter(self, element):
        self._look(element)
        return True


class Split(Raising, g.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element):
        return [self._look(element)] * 2


class Block(Raising, g.transforms.BlockMap):
    def block_map(self, elements):
        return [self._look(element) for element in elements]


class Stack(Raising):
    def __call__(self, elements):
        return np.stack(self._look(elements))


class Refusing:
    """An element that fails when it is batched."""

    def __init__(self, error):
        self._error = error

    def __array__(self, *args, **kwargs):
        raise self._error("user code")


class Spoil(Raising, g.transforms.Map):
    def map(self, element):
        return Refusing(self._error) if element == STOP else element


class Third(g.transforms.Filter):
    def filter(self, element):
        return bool(element % 3)


def generator(error):
    def operation(records):
        for record in records:
            if record.data == STOP:
                raise error("user code")
            yield record

    return operation


def calling(error):
    def operation(records):
        raise error("user code")

    return operation


STEPS = {
    "map": lambda error: [Map(error)],
    "random map": lambda error: [RandomMap(error)],
    "with index": lambda error: [WithIndex(error)],
    "filter": lambda error: [Filter(error)],
    "flat map": lambda error: [Split(error)],
    "block map": lambda error: [Block(error)],
    "batch_fn": lambda error: [g.Batch(3, batch_fn=Stack(error))],
    "batch_fn after flat map": lambda error: [
        Split(None, at=-1),
        g.Batch(3, batch_fn=Stack(error)),
    ],
    "batch of element": lambda error: [Spoil(error), g.Batch(3)],
    "map of batch": lambda error: [g.Batch(3), Map(error)],
    "filter of batch": lambda error: [g.Batch(3), Filter(error)],
    "random map of batch": lambda error: [g.Batch(3), RandomMap(error)],
    "legacy generator": lambda error: [generator(error)],
    "legacy call": lambda error: [calling(error)],
}


def loader(source=None, operations=(), **options):
    options.setdefault("sampler", g.samplers.SequentialSampler(RECORDS))
    options.setdefault("shard_options", g.sharding.NoSharding())
    source = range(RECORDS) if source is None else source
    return g.DataLoader(data_source=source, operations=list(operations), **options)


def outcomes(iterator, most=3 * RECORDS):
    """Return the outputs of an iterator, with error types in place of failed ones."""
    found = []
    while len(found) < most:
        try:
            found.append(np.asarray(next(iterator)).tolist())
        except StopIteration:
            # The end is permanent.
            assert next(iterator, None) is None
            return found
        except Exception as error:
            found.append(type(error))
    raise AssertionError(f"no end: {found}")


def expected(streams=1, batch=None, drop=False, keep=lambda key: True, at=STOP):
    """Return the expected outputs if the source ends before record `at`."""
    rows = []
    for stream in range(streams):
        keys = range(stream, RECORDS, streams)
        row = [key for key in itertools.takewhile(lambda k: k != at, keys) if keep(key)]
        if batch:
            cut = len(row) - len(row) % batch if drop else len(row)
            row = [row[i : i + batch] for i in range(0, cut, batch)]
        rows.append(row)
    missing = object()
    turns = itertools.chain(*itertools.zip_longest(*rows, fillvalue=missing))
    return [output for output in turns if output is not missing]


@given(
    kind=st.sampled_from([Source, Together, Sampler]),
    streams=st.integers(1, 4),
    batch=st.none() | st.integers(1, 9),
    drop=st.booleans(),
    filtered=st.booleans(),
    blocks=st.booleans(),
    threads=st.booleans(),
    at=st.integers(0, RECORDS),
)
def test_stop_iteration_of_source_ends_stream(
    kind, streams, batch, drop, filtered, blocks, threads, at
):
    operations = [*[Block(None, at=-1)] * blocks, *[Third()] * filtered]
    if batch:
        operations.append(g.Batch(batch, drop_remainder=drop))
    what = {"source" if kind is not Sampler else "sampler": kind(at=at)}
    made = loader(**what, operations=operations, streams=streams)
    keep = Third().filter if filtered else lambda key: True
    wanted = expected(streams, batch, drop, keep, at)
    iterator = iter(made)
    if threads:
        iterator.start_prefetch()  # Records are read by threads from now on.
    states, found = [iterator.get_state()], []
    for _ in wanted:
        found.append(np.asarray(next(iterator)).tolist())
        assert iterator.ids().tolist() == np.ravel(found[-1]).tolist()
        states.append(iterator.get_state())
    assert found == wanted
    assert outcomes(iterator) == []
    for done, state in enumerate(states):
        iterator.set_state(state)
        assert outcomes(iterator) == wanted[done:]


@pytest.mark.parametrize("kind", [Source, Together, Sampler])
@pytest.mark.parametrize(
    ("streams", "batch", "drop", "filtered"),
    [(1, 7, False, False), (3, 4, True, False), (1, 7, False, True)],
)
@pytest.mark.multiprocess
def test_stop_iteration_of_source_ends_stream_of_workers(
    kind, streams, batch, drop, filtered
):
    operations = [Third()] if filtered else []
    if batch:
        operations.append(g.Batch(batch, drop_remainder=drop))
    what = {"source" if kind is not Sampler else "sampler": kind()}
    made = loader(**what, operations=operations, streams=streams, worker_count=2)
    keep = Third().filter if filtered else lambda key: True
    wanted = expected(streams, batch, drop, keep)
    iterator = iter(made)
    found = [np.asarray(next(iterator)).tolist() for _ in wanted[:-1]]
    state = iterator.get_state()
    assert found + outcomes(iterator) == wanted
    iterator.set_state(state)
    assert outcomes(iterator) == wanted[-1:]
    iterator.close()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.multiprocess
def test_source_shorter_than_its_length_ends_early(workers):
    length = 10**10
    source = Short(length=length)
    sampler = g.samplers.SequentialSampler(length)
    made = loader(source, [g.Batch(7)], sampler=sampler, worker_count=workers)
    found = itertools.chain(*outcomes(iter(made)))
    assert sorted(found) == [*range(STOP)]


class Lines:
    """Returns its lines in order like a file, for any index."""

    def __len__(self):
        return 10**10

    def __getitem__(self, index):
        if not hasattr(self, "_lines"):
            self._lines = iter(range(STOP))
        return next(self._lines)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.multiprocess
def test_sequential_source_is_read_to_its_end(workers):
    made = g.load(Lines(), batch_size=7, num_epochs=1, worker_count=workers)
    found = itertools.chain(*outcomes(iter(made)))
    assert [*found] == [*range(STOP)]


@pytest.mark.parametrize("kind", [Source, Together])
@pytest.mark.parametrize("policy", ["skip", "substitute"])
@pytest.mark.parametrize(
    "operations", [[], [Split(None, at=-1)]], ids=["map", "flat map"]
)
def test_end_of_source_is_not_a_bad_record(kind, policy, operations):
    iterator = iter(loader(kind(), operations, on_error=policy))
    assert len(outcomes(iterator)) == STOP * (1 + len(operations))
    assert iterator.errors.count == 0


def test_records_past_end_are_no_substitutes():
    class Bad(Short):
        def __getitem__(self, index):
            if index == STOP - 1:
                raise ValueError("bad")
            return super().__getitem__(index)

    iterator = iter(loader(Bad(), on_error="substitute"))
    found = outcomes(iterator)
    assert len(found) == STOP
    assert found[-1] in range(STOP - 1)


@pytest.mark.parametrize("policy", ["skip", "substitute"])
@pytest.mark.parametrize("step", ["map", "filter", "flat map", "block map"])
def test_stop_iteration_of_step_is_a_bad_record(policy, step):
    iterator = iter(loader(operations=STEPS[step](StopIteration), on_error=policy))
    lost = 1 if policy == "skip" else 0
    per_record = 2 if step == "flat map" else 1
    assert len(outcomes(iterator)) == (RECORDS - lost) * per_record
    (bad,) = iterator.errors.last
    assert (bad.index, bad.error) == (STOP, "RuntimeError")
    assert bad.message.endswith("raised StopIteration (from StopIteration: user code)")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("batch", [False, True], ids=["single", "batches"])
def test_stop_iteration_of_step_fails_like_other_errors(step, streams, batch):
    def run(error):
        operations = [*STEPS[step](error), *[g.Batch(2)] * batch]
        iterator = iter(loader(operations=operations, streams=streams))
        found, states = [], []
        for _ in range(2 * RECORDS + 2):
            try:
                found.append(np.asarray(next(iterator)).tolist())
            except StopIteration:
                break
            except Exception as raised:
                found.append(type(raised))
            states.append(iterator.get_state())
        return found, states

    stopping, failing = run(StopIteration), run(ValueError)
    assert ValueError in failing[0]
    renamed = [RuntimeError if x is ValueError else x for x in failing[0]]
    assert stopping == (renamed, failing[1])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.multiprocess
def test_stop_iteration_of_step_fails_same_in_workers(step):
    operations = STEPS[step](StopIteration)
    alone, together = (
        outcomes(
            itertools.islice(
                iter(loader(operations=operations, streams=2, worker_count=workers)), 50
            )
        )
        for workers in (0, 2)
    )
    assert together == alone


@pytest.mark.parametrize(
    "workers", [0, pytest.param(1, marks=pytest.mark.multiprocess)]
)
@pytest.mark.parametrize(
    ("step", "who", "what"),
    [
        ("map", "Map", f"while Map processed record {STOP} (index {STOP})"),
        ("flat map", "Split", f"while Split processed record {STOP} (index {STOP})"),
        ("batch_fn", "Batch", "while batch_fn made a batch of 3 elements"),
    ],
)
def test_stop_iteration_of_step_names_step_and_record(workers, step, who, what):
    made = loader(operations=STEPS[step](StopIteration), worker_count=workers)
    with pytest.raises(RuntimeError) as caught:
        list(made)
    assert caught.value.args == (f"{who} raised StopIteration",)
    assert what in caught.value.__notes__
    assert isinstance(caught.value.__cause__, StopIteration)
    assert str(caught.value.__cause__) == "user code"


@pytest.mark.parametrize("error", [IndexError, KeyError, RuntimeError])
@pytest.mark.parametrize("kind", [Source, Together, Sampler])
@pytest.mark.parametrize("batch", [None, 7])
def test_other_errors_of_source_do_not_end_stream(error, kind, batch):
    what = {"source" if kind is not Sampler else "sampler": kind(error)}
    operations = [g.Batch(batch)] if batch else []
    found = outcomes(iter(loader(**what, operations=operations)))
    assert found.count(error) == 1
    flat = np.hstack([x for x in found if x is not error]).tolist()
    assert flat[-1] == RECORDS - 1
    assert STOP not in flat


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("place", [*STEPS, "source", "sampler"])
def test_exits_of_user_code_reach_the_caller(error, place):
    what = {"source": {"source": Source(error)}, "sampler": {"sampler": Sampler(error)}}
    options = what.get(place) or {"operations": STEPS[place](error)}
    iterator = iter(loader(**options))
    with pytest.raises(error):
        for _ in iterator:
            pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.multiprocess
def test_exit_in_worker_raises_worker_died(error):
    iterator = iter(loader(operations=[Map(error)], worker_count=1))
    with pytest.raises(g.errors.WorkerDied):
        for _ in iterator:
            pass
    iterator.close()
