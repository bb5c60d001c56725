"""Loaders, the sources and samplers they read, and states of their iterators."""

import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any, SupportsIndex, TypedDict, TypeVar, assert_type

import numpy as np
import numpy.typing as npt

import gristmill as grain


class Row(TypedDict):
    key: int


class Batch(TypedDict):
    key: npt.NDArray[np.int64]


class Rows(grain.RandomAccessDataSource[Row]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, record_key: SupportsIndex) -> Row:
        return {"key": record_key.__index__()}

    def __repr__(self) -> str:
        return "Rows()"


class Bare:
    """A source by duck typing."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> bytes:
        return bytes(index)


class Backwards:
    """A sampler by duck typing."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> grain.RecordMetadata:
        if i >= 6:
            raise IndexError(i)
        return grain.RecordMetadata(index=i, record_key=5 - i)


S = TypeVar("S")


def first_of(source: grain.RandomAccessDataSource[S]) -> S:
    return source[0]


def every_other(records: Iterator[grain.Record[Row]]) -> Iterator[grain.Record[Row]]:
    for index, record in enumerate(records):
        if index % 2:
            yield record


assert_type(first_of(Rows()), Row)
assert_type(first_of(Bare()), bytes)
assert_type(first_of([1.5]), float)
assert_type(first_of(grain.RangeDataSource(0, 3, 1)), int)
assert_type(grain.MapDataset.source(Rows()), grain.MapDataset[Row])
assert_type(grain.MapDataset.source(Bare()), grain.MapDataset[bytes])

# The annotation sets the element type of a loader, because operations do not.
loader: grain.DataLoader[Batch] = grain.DataLoader(
    data_source=Rows(),
    sampler=grain.IndexSampler(6, shuffle=True, num_epochs=1, seed=1),
    operations=[grain.Batch(2)],
    worker_count=0,
)
for batch in loader:
    assert_type(batch, Batch)
    assert_type(batch["key"], npt.NDArray[np.int64])
assert_type(iter(loader), grain.DataLoaderIterator[Batch])

untold = grain.DataLoader(
    data_source=Bare(),
    sampler=Backwards(),
    shard_options=grain.NoSharding(),
    read_options=grain.ReadOptions(num_threads=0),
)
assert_type(untold, grain.DataLoader[Any])
for element in untold:
    assert_type(element, Any)
grain.DataLoader(
    data_source=Rows(), sampler=grain.SequentialSampler(6), operations=[every_other]
)
grain.DataLoader(
    data_source={"x": np.zeros((6, 2))}, sampler=grain.SequentialSampler(6)
)
grain.DataLoader[int](data_source=range(6), sampler=grain.SequentialSampler(6))

# Loaders made by one call.
assert_type(grain.load([1, 2, 3], num_epochs=1), grain.DataLoader[int])
assert_type(
    grain.load(Rows(), shuffle=True, seed=1, num_epochs=1), grain.DataLoader[Row]
)
assert_type(grain.load(Rows(), batch_size=2), grain.DataLoader[Any])
assert_type(
    grain.load([1, 2, 3], transformations=[grain.Batch(2)]), grain.DataLoader[Any]
)
assert_type(grain.load({"x": np.zeros((6, 2))}), grain.DataLoader[dict[str, Any]])
assert_type(
    grain.load({"x": np.zeros((6, 2))}, batch_size=2, worker_count=0),
    grain.DataLoader[dict[str, npt.NDArray[Any]]],
)
assert_type(
    grain.load([1, 2, 3], batch_size=2, drop_remainder=True),
    grain.DataLoader[npt.NDArray[Any]],
)
rows_of_float32 = [np.zeros(2, np.float32)]
assert_type(
    grain.load(rows_of_float32, batch_size=2, shuffle=True, seed=1),
    grain.DataLoader[npt.NDArray[np.float32]],
)
assert_type(
    grain.load([{"x": row} for row in rows_of_float32], batch_size=2),
    grain.DataLoader[dict[str, npt.NDArray[np.float32]]],
)
assert_type(grain.load(np.zeros((6, 2)), batch_size=2), grain.DataLoader[Any])
anything: list[Any] = [1]
assert_type(grain.load(anything, batch_size=2), grain.DataLoader[Any])
assert_type(grain.load(anything), grain.DataLoader[Any])
for row in grain.load(Rows(), num_epochs=1):
    assert_type(row["key"], int)


def train(loader: grain.DataLoader, batches: grain.DataLoaderIterator) -> None:
    """Use annotations without a parameter, like users of Grain."""
    assert_type(loader, grain.DataLoader[Any])
    assert_type(next(batches), Any)


train(loader, iter(loader))

# States.
iterator = iter(loader)
assert_type(next(iterator), Batch)
state = iterator.get_state()
assert_type(state, bytes)
iterator.set_state(state)
assert_type(iterator.ids(), npt.NDArray[np.int64])
assert_type(iterator.errors, grain.bad_records.BadRecords)
assert_type(loader.replay(state), Batch)
with tempfile.TemporaryDirectory() as folder:
    handler = grain.checkpoint.CheckpointHandler()
    handler.save(pathlib.Path(folder), iterator)
    handler.restore(folder, iterator)

# Samplers.
sampler = grain.samplers.IndexSampler(
    num_records=6, shard_options=grain.sharding.ShardOptions(0, 2), shuffle=False
)
assert_type(sampler[0], grain.RecordMetadata)
assert_type(sampler[0].record_key, int | None)
assert_type(sampler[0].rng, np.random.Generator | None)
assert_type(sampler.record_keys(0, 2, 3), npt.NDArray[np.int64])
as_sampler: list[grain.Sampler] = [sampler, grain.SequentialSampler(6), Backwards()]

assert_type(grain.Record(grain.RecordMetadata(0), data="x"), grain.Record[str])
