"""Chains of datasets: every step has the right element type."""

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict, assert_type

import numpy as np
import numpy.typing as npt

import gristmill as grain
from gristmill import IterDataset, MapDataset
from gristmill.experimental import (
    CacheIterDataset,
    FlatMapIterDataset,
    FlatMapMapDataset,
    InterleaveIterDataset,
    LimitIterDataset,
    RepeatIterDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    WindowShuffleMapDataset,
    ZipMapDataset,
    multithread_prefetch,
)

Columns = dict[str, npt.NDArray[np.float32]]


class Features(TypedDict):
    image: npt.NDArray[np.float32]
    label: int


def halves(some: list[int]) -> list[float]:
    return [x / 2 for x in some]


def halve(x: int) -> float:
    return x / 2


def as_columns(x: int) -> Columns:
    return {"x": np.full(2, x, np.float32)}


def as_row(x: int) -> npt.NDArray[np.float32]:
    return np.full(2, x, np.float32)


def as_features(x: int) -> Features:
    return {"image": as_row(x), "label": x}


def as_anything(x: int) -> Any:
    return {"tokens": [x]}


def joined(elements: list[str]) -> str:
    return "".join(elements)


def counted(elements: Sequence[object]) -> int:
    return len(elements)


# Sources.
numbers = grain.MapDataset.range(8)
assert_type(numbers, MapDataset[int])
assert_type(grain.MapDataset.source([1, 2, 3]), MapDataset[int])
assert_type(grain.MapDataset.source("abc"), MapDataset[str])
assert_type(grain.MapDataset.source([b"a", b"b"]), MapDataset[bytes])
assert_type(grain.MapDataset.source(range(3)), MapDataset[int])
assert_type(grain.MapDataset.source(np.zeros((3, 2))), MapDataset[Any])
assert_type(
    grain.MapDataset.source({"x": np.zeros((3, 2)), "y": np.zeros(3)}),
    MapDataset[dict[str, Any]],
)
assert_type(grain.MapDataset.source(grain.RangeDataSource(0, 8, 1)), MapDataset[int])

# An index may have no element; a slice or a list of indices gives a dataset.
assert_type(numbers[0], int | None)
assert_type(numbers[2:4], MapDataset[int])
assert_type(numbers[[3, 1]], MapDataset[int])
assert_type(numbers[np.array([3, 1])], MapDataset[int])
assert_type(numbers.slice(numbers), MapDataset[int])

# Steps that take functions.
assert_type(grain.MapDataset.source([1, 2]).map(halve), MapDataset[float])
assert_type(numbers.map(lambda x: x + 1), MapDataset[int])
assert_type(numbers.map(str), MapDataset[str])
assert_type(numbers.map(as_features), MapDataset[Features])
assert_type(
    numbers.map_with_index(lambda index, x: (index, x)), MapDataset[tuple[int, int]]
)
assert_type(
    numbers.random_map(lambda x, rng: x + rng.random(), seed=1), MapDataset[float]
)
assert_type(numbers.block_map(halves), MapDataset[float])
assert_type(numbers.filter(lambda x: x % 2 == 0), MapDataset[int])
assert_type(numbers.map(np.float32).filter(lambda x: x > 2), MapDataset[np.float32])

# Batches, stacked or made by a function.
assert_type(
    grain.MapDataset.source([1, 2]).map(halve).batch(8), MapDataset[npt.NDArray[Any]]
)
assert_type(numbers.map(as_row).batch(8), MapDataset[npt.NDArray[np.float32]])
assert_type(numbers.map(as_columns).batch(2, drop_remainder=True), MapDataset[Columns])
assert_type(numbers.map(as_features).batch(8), MapDataset[Any])
assert_type(numbers.map(as_anything).batch(8), MapDataset[Any])
assert_type(numbers.map(str).batch(8, batch_fn=joined), MapDataset[str])
assert_type(numbers.batch(8, batch_fn=counted), MapDataset[int])

# Steps that do not change elements.
kept = numbers.seed(1).shuffle().repeat(2, reseed_each_epoch=False).slice(slice(9))
assert_type(kept, MapDataset[int])
assert_type(kept.set_options(grain.experimental.DatasetOptions()), MapDataset[int])
assert_type(kept.pipe(WindowShuffleMapDataset, window_size=2, seed=1)[0], Any)
assert_type(
    WindowShuffleMapDataset(kept, window_size=2, seed=1), WindowShuffleMapDataset[int]
)

# Shards for ranks, with masks if they are padded.
rank = grain.ShardOptions(shard_index=0, shard_count=2)
assert_type(kept.shard(rank, batch_size=2), MapDataset[int])
assert_type(kept.shard(rank, grain.sharding.Remainder.WRAP), MapDataset[int])
assert_type(kept.shard(rank, "pad", mask_key=None), MapDataset[Any])

# Several datasets.
assert_type(grain.MapDataset.mix([numbers, kept], [1, 2]), MapDataset[int])
assert_type(
    grain.MapDataset.mix({"a": numbers, "b": kept}, {"a": 1, "b": 2}), MapDataset[int]
)
assert_type(grain.MapDataset.concatenate([numbers, kept]), MapDataset[int])
assert_type(grain.MapDataset.zip([numbers, numbers]), MapDataset[tuple[Any, ...]])
zipped: MapDataset[tuple[int, str]] = ZipMapDataset([numbers, numbers.map(str)])
assert_type(zipped.map(lambda pair: pair[1]), MapDataset[str])

# The same after conversion to an IterDataset.
stream = kept.to_iter_dataset(grain.ReadOptions(num_threads=0))
assert_type(stream, IterDataset[int])
assert_type(len(stream), int)
assert_type(stream.map(halve).filter(lambda x: x > 1), IterDataset[float])
assert_type(stream.block_map(halves, block_size=8), IterDataset[float])
assert_type(stream.random_map(lambda x, rng: str(rng.random())), IterDataset[str])
assert_type(stream.map_with_index(lambda index, x: b""), IterDataset[bytes])
assert_type(stream.batch(2), IterDataset[npt.NDArray[Any]])
assert_type(stream.map(as_columns).batch(2), IterDataset[Columns])
assert_type(stream.map(str).batch(2, batch_fn=joined), IterDataset[str])
assert_type(
    stream.map(as_row).bucket_by_sequence_length(len, [4], [2, 2]), IterDataset[Any]
)
assert_type(
    numbers.map(str).bucket_by_sequence_length(len, [4], max_tokens=8, batch_fn=joined),
    IterDataset[Any],
)
assert_type(stream.mp_prefetch(grain.MultiprocessingOptions()), IterDataset[int])
assert_type(grain.IterDataset.mix([stream, stream]), IterDataset[int])
assert_type(grain.IterDataset.from_iterable(["a"]), IterDataset[str])


def bytes_of(shard_index: int, shard_count: int) -> Iterator[bytes]:
    yield b""


assert_type(grain.IterDataset.from_iterable(bytes_of, replay=True), IterDataset[bytes])
assert_type(grain.IterDataset.mix({"a": stream, "b": stream}), IterDataset[int])
assert_type(
    grain.IterDataset.zip([stream, stream], strict=False), IterDataset[tuple[Any, ...]]
)
assert_type(LimitIterDataset(stream, 3), LimitIterDataset[int])
assert_type(RepeatIterDataset(stream, 3), RepeatIterDataset[int])
assert_type(CacheIterDataset(stream), CacheIterDataset[int])
assert_type(
    WindowShuffleIterDataset(stream, window_size=2, seed=1),
    WindowShuffleIterDataset[int],
)
assert_type(
    ThreadPrefetchIterDataset(stream, prefetch_buffer_size=1),
    ThreadPrefetchIterDataset[int],
)
assert_type(
    InterleaveIterDataset([numbers, kept], cycle_length=2), InterleaveIterDataset[int]
)
assert_type(multithread_prefetch(stream, 0, 1), IterDataset[int])

# Iteration.
for number in numbers:
    assert_type(number, int)
iterator = iter(numbers)
assert_type(iterator, grain.DatasetIterator[int])
assert_type(next(iterator), int)
state = iterator.get_state()
assert_type(state, dict[str, Any])
iterator.set_state(state)
for columns in stream.map(as_columns).batch(2):
    assert_type(columns["x"], npt.NDArray[np.float32])
assert_type(grain.experimental.get_next_index(iter(stream)), int)


# Users' own datasets, sources and iterators.
class Squares(grain.MapDataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: Any) -> Any:
        return index**2 if isinstance(index, int) else self.slice(index)


class CountIterator(grain.DatasetIterator[int]):
    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def __next__(self) -> int:
        if self._count == 3:
            raise StopIteration
        self._count += 1
        return self._count

    def get_state(self) -> dict[str, int]:
        return {"count": self._count}

    def set_state(self, state: dict[str, int]) -> None:
        self._count = state["count"]


class Counts(grain.IterDataset[int]):
    def __iter__(self) -> CountIterator:
        return CountIterator()


class Split(grain.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, number: int) -> list[str]:
        return [str(number)] * 2


assert_type(Squares().map(halve), MapDataset[float])
assert_type(Counts().map(str), IterDataset[str])
assert_type(next(iter(Counts())), int)
assert_type(FlatMapMapDataset(numbers, Split()), FlatMapMapDataset[str])
assert_type(FlatMapIterDataset(stream, Split()), FlatMapIterDataset[str])


# A dataset of unknown elements, and one with a narrower element type.
def consume(dataset: grain.MapDataset, numbers: grain.MapDataset[float]) -> None:
    assert_type(dataset, MapDataset[Any])
    assert_type(dataset.batch(8), MapDataset[Any])
    assert_type(dataset.to_iter_dataset().batch(8), IterDataset[Any])
    assert_type(numbers.map(str), MapDataset[str])


consume(numbers, numbers)
