"""Sources, samplers and batches at the limits of what Grain accepts, live in both."""

import collections
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from differential.pipelines import OURS, THEIRS, canonical, ready


class Source:
    """A source of function(key) whose ``length`` may be invalid."""

    def __init__(self, function: Callable[[Any], Any], length: Any = None):
        self._function = function
        self._length = length

    def __len__(self):
        return self._length

    def __getitem__(self, key):
        return self._function(key)


class Unsized:
    """A source without a length that returns its keys."""

    def __getitem__(self, key):
        return key


class Sampler:
    """A sampler that returns the metadata of a list."""

    def __init__(self, metadata: list[Any]):
        self._metadata = metadata

    def __getitem__(self, index):
        return self._metadata[index]


def outcomes(make: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return the result or error type of ``make(legacy namespace)``, Grain's first."""
    found = []
    for library in (THEIRS, OURS):
        try:
            found.append(canonical(make(ready(library))))
        except Exception as error:
            found.append(type(error))
    return found[0], found[1]


def assert_alike(make: Callable[[Any], Any]) -> None:
    """Assert equal values, or that Gristmill's error is a kind of Grain's."""
    theirs, ours = outcomes(make)
    if isinstance(theirs, type) and isinstance(ours, type):
        assert issubclass(ours, theirs)
    else:
        assert ours == theirs


def run(g: Any, source: Any, operations: Any = (), sampler: Any = None) -> list[Any]:
    """Return the output of a loader of a list, or of 5 records of another source."""
    if sampler is None:
        count = len(source) if isinstance(source, (list, np.ndarray)) else 5
        sampler = g.SequentialSampler(count, seed=3)
    return list(
        g.DataLoader(
            data_source=source,
            sampler=sampler,
            operations=operations,
            shard_options=g.NoSharding(),
        )
    )


def final_state(g: Any, source: list[Any], operations: Any) -> bytes:
    """Return the final state of a loader over a list."""
    iterator = iter(
        g.DataLoader(
            data_source=source,
            sampler=g.SequentialSampler(len(source)),
            operations=operations,
            shard_options=g.NoSharding(),
        )
    )
    collections.deque(iterator, maxlen=0)
    return iterator.get_state()


LEGACY = {"plain": lambda g: [], "legacy": lambda g: [lambda records: records]}


@pytest.mark.parametrize("operations", LEGACY.values(), ids=LEGACY)
@pytest.mark.parametrize(
    "source",
    [Unsized(), Source(lambda key: key), Source(str, 2.5), Source(lambda key: key, 3)],
    ids=["no length", "None", "a float", "sized"],
)
def test_unsized_source_gets_keys_unchanged(source, operations):
    assert_alike(lambda g: run(g, source, operations(g)))


KEYS: dict[str, list[Any]] = {
    "names": ["x", "y", "x"],
    "bytes": [b"x", b"y"],
    "tuples": [(1, 2), (3, 4)],
    "NumPy": [np.int64(5), np.uint8(1)],
    "floats": [4.5, 1.0],
    "far": [2**70, -(2**70)],
    "None": [None, 1],
    "mixed": [0, "y", 2],
}


@pytest.mark.parametrize("operations", LEGACY.values(), ids=LEGACY)
@pytest.mark.parametrize("length", [None, 3])
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_sampler_may_have_any_keys(keys, length, operations):
    def make(g):
        metadata = [g.RecordMetadata(i, key) for i, key in enumerate(keys)]
        source = Source(lambda key: key, length)
        return run(g, source, operations(g), Sampler(metadata))

    assert_alike(make)


def test_records_may_have_names():
    def make(g):
        metadata = [g.RecordMetadata(i, name) for i, name in enumerate("abba")]
        return run(g, {"a": 1, "b": 2}, [g.Batch(3)], Sampler(metadata))

    assert_alike(make)
    assert [batch.tolist() for batch in make(ready(OURS))] == [[1, 2, 2], [1]]


def test_ids_of_non_numeric_keys_are_minus_one():
    g = ready(OURS)
    for operations in ([], [lambda records: records]):
        loader = g.DataLoader(
            data_source={"a": 5, 1: 6},
            sampler=Sampler([g.RecordMetadata(0, "a"), g.RecordMetadata(1, 7)]),
            shard_options=g.NoSharding(),
            operations=operations,
        )
        iterator = iter(loader)
        seen = [(next(iterator), iterator.ids().tolist()) for _ in range(2)]
        assert seen == [(5, [-1]), (6, [1])]


@pytest.mark.parametrize(
    "indices", [[7] * 6, [0, 0, 1, 1, 2, 2], [5, 4, 3, 5, 4, 3], [2**70, None, "a"]]
)
@pytest.mark.parametrize("size", [1, 4])
def test_random_numbers_do_not_depend_on_the_index(indices, size):
    def make(g):
        class Draw(g.RandomMapTransform):
            def random_map(self, element, rng):
                return rng.random()

        class Most(g.FilterTransform):
            def filter(self, element):
                return element != 2

        metadata = [
            g.RecordMetadata(index, key, np.random.default_rng(key))
            for key, index in enumerate(indices)
        ]
        operations = [Most(), Draw(), g.Batch(size)]
        return run(g, Source(int, 9), operations, Sampler(metadata))

    assert_alike(make)


BATCHED: dict[str, list[Any]] = {
    "big-endian": [np.arange(3, dtype=">i4")] * 3,
    "one masked": [np.ma.array([1, 2], mask=[0, 1])],
    "jax": [jnp.arange(3)] * 3,
    "torch": [torch.arange(3)] * 3,
    "bfloat16": [ml_dtypes.bfloat16(i) for i in range(3)],
    "bfloat16 and float": [ml_dtypes.bfloat16(1), np.float32(2)],
    "mixed shapes": [np.zeros(2), np.zeros(3)],
    "mixed dtypes": [np.zeros(2, "f4"), np.zeros(2, "i8")],
    "int8 and int": [np.int8(1), 300],
    "uint64 and int64": [np.uint64(1), np.int64(-3)],
    "bool and int": [True, 1],
    "text and int": ["a", 1],
    "None and int": [None, 1],
    "int and None": [1, None],
    "array and text": [np.zeros(2), "a"],
    "beyond uint64": [2**70, 1],
    "past int64": [2**63, -1],
    "list and tuple": [[1, 2], (1, 2)],
    "other keys": [{"a": 1}, {"b": 1}],
    "keys in another order": [{"a": 1, "b": 2}, {"b": 10, "a": 20}],
    "ordered in another order": [
        collections.OrderedDict(a=1, b=2),
        collections.OrderedDict(b=1, a=2),
    ],
    "other factories": [
        collections.defaultdict(int, a=1),
        collections.defaultdict(list, a=1),
    ],
    "unsortable keys": [{"a": 1, 2: 3}] * 2,
    "nothing": [{}, {}],
    "seconds and milliseconds": [np.datetime64(1, "s"), np.datetime64(2, "ms")],
    "64 axes": [np.zeros((1,) * 63)] * 2,
}


@pytest.mark.parametrize("kind", ["Batch", "BatchOperation"])
@pytest.mark.parametrize("elements", BATCHED.values(), ids=BATCHED)
def test_batches_equal_grains(elements, kind):
    assert_alike(lambda g: run(g, elements, [getattr(g, kind)(2)]))
    assert_alike(lambda g: run(g, elements, [getattr(g, kind)(1)]))


TABLES: dict[str, np.ndarray] = {
    "texts": np.array(["a", "bcd", "e", ""]),
    "bytes": np.array([b"a", b"bcd", b"e"]),
    "rows of texts": np.array([["a"], ["bcd"], ["e"]]),
    "big-endian": np.arange(5, dtype=">f8"),
    "structured": np.array([(1, 2.0), (3, 4.0)], "i4,f8"),
    "objects": np.array([[1, "a"], [2, None]], object),
    "records": np.rec.array([(1, 2.0), (3, 4.0)], dtype="i4,f8"),
    "masked": np.ma.array([1, 2, 3], mask=[0, 1, 0]),
    "void": np.zeros(3, "V3"),
    "variable texts": np.array(["a", "bcd"], np.dtypes.StringDType()),
    "bfloat16": np.arange(3).astype(ml_dtypes.bfloat16),
    "reversed": np.arange(20).reshape(5, 4)[::-1, ::2],
    "no columns": np.zeros((3, 0)),
    "no items": np.zeros((3, 0, 2), "M8[D]"),
}


@pytest.mark.parametrize("size", [None, 1, 2])
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_array_source_gives_stacked_rows(table, size):
    assert_alike(lambda g: run(g, table, [] if size is None else [g.Batch(size)]))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda element: [],
    "text": lambda element: "ab",
    "dict": lambda element: {element: 1},
    "array": np.arange,
    "number": lambda element: element,
    "None": lambda element: None,
}


@pytest.mark.parametrize("fan_out", [-3, 0, 1, 100, None, "a"])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_flat_map_splits_equal_grains(function, fan_out):
    def make(g):
        class Split(g.experimental.FlatMapTransform):
            max_fan_out = fan_out

            def flat_map(self, element):
                return function(element)

        def reveal(records):
            for record in records:
                yield g.Record(record.metadata, (record.data, record.metadata.index))

        return run(g, [3, 1, 2], [Split(), reveal])

    assert_alike(make)


@pytest.mark.parametrize("size", [None, 2, 3])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_consecutive_flat_maps_end_in_the_same_state(depth, size):
    def make(g, fan_outs):
        class Split(g.experimental.FlatMapTransform):
            max_fan_out = 3

            def __init__(self, fan_outs):
                self.fan_outs = fan_outs

            def flat_map(self, element):
                parts = self.fan_outs[element % len(self.fan_outs)]
                return [3 * element + part for part in range(parts)]

        operations = [Split(fan_outs[level:]) for level in range(depth)]
        operations += [] if size is None else [g.Batch(size)]
        return final_state(g, [3, 1, 2, 4], operations)

    for fan_outs in itertools.product([0, 1, 3], repeat=4):
        assert_alike(functools.partial(make, fan_outs=fan_outs))


@pytest.mark.parametrize("where", ["source", "sampler"])
def test_stop_iteration_in_source_or_sampler_equals_grain(where):
    def stop(*_: Any) -> Any:
        raise StopIteration

    def make(g):
        if where == "source":
            return run(g, Source(stop, 5))
        sampler = type("Stops", (), {"__getitem__": stop, "__len__": lambda _: 3})()
        return run(g, [1, 2, 3], sampler=sampler)

    assert_alike(make)


@pytest.mark.parametrize("number", [np.int8, np.uint8, np.int64])
@pytest.mark.parametrize("kind", ["IndexSampler", "SequentialSampler"])
def test_numbers_may_be_numpy_scalars(number, kind):
    def make(g, number):
        epochs = {"num_epochs": number(6)} if kind == "IndexSampler" else {}
        shards = g.ShardOptions(number(1), number(2))
        sampler = getattr(g, kind)(number(100), shards, **epochs)
        loader = g.DataLoader(
            data_source=list(range(100)),
            sampler=sampler,
            operations=[g.Batch(number(30))],
            worker_count=number(0),
            read_options=g.ReadOptions(number(1), number(1)),
        )
        iterator = iter(loader)
        return [(b.tolist(), iterator.get_state()) for b in iterator], repr(sampler)

    ours, plain = make(ready(OURS), number), make(ready(THEIRS), int)
    # The states differ only in the text of the options.
    assert [batch for batch, _ in ours[0]] == [batch for batch, _ in plain[0]]
    index, count = number(1), number(2)
    for (_, found), (_, expected) in zip(ours[0], plain[0], strict=True):
        text = expected.decode().replace("index=1,", f"index={index!r},")
        assert found.decode() == text.replace("count=2,", f"count={count!r},")


@pytest.mark.parametrize("index", [2**62, 2**63, 2**64 + 1, 3 * 2**70 + 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_endless_sampler_accepts_every_index(index, shuffle):
    def make(g):
        metadata = g.IndexSampler(5, shuffle=shuffle, seed=2**32 - 1)[index]
        return metadata.index, metadata.record_key, metadata.rng.random()

    theirs, ours = outcomes(make)
    assert not isinstance(ours, type)
    if not isinstance(theirs, type):
        assert ours == theirs


def test_states_are_validated_only_on_request():
    text = {
        "version": 2,
        "last_seen_indices": {"0": 1},
        "last_worker_index": -1,
        "worker_count": 0,
        "sampler": "another",
        "data_source": "another",
    }

    def make(validate):
        def iterate(g):
            loader = g.DataLoader(
                data_source=[5, 6, 7, 8], sampler=g.SequentialSampler(4)
            )
            return list(g.PyGrainDatasetIterator(loader, text, validate))

        return iterate

    assert_alike(make(False))
    assert_alike(make(True))
    assert make(False)(ready(OURS)) == [7, 8]
