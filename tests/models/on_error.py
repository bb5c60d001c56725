"""A model in plain Python of a loader that skips or substitutes bad records.

A `Case` describes a pipeline; `loader` builds it, and `turns` computes its output
record by record, without the engine.
"""

import copy
import dataclasses
import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

import gristmill as g


class Rows:
    """A source of records {"key": i, "value": 0} that raises for some keys."""

    def __init__(self, count: int, bad: frozenset[int] = frozenset()) -> None:
        self.count = count
        self.bad = bad

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: int) -> dict[str, int]:
        number = int(key)
        if number in self.bad:
            raise OSError(f"row {key}")
        return {"key": number, "value": 0}

    def __repr__(self) -> str:
        return f"Rows({self.count})"


class RowsTogether(Rows):
    """Like `Rows`, but reads many records at once and fails as a whole."""

    def __getitems__(self, keys: list[int]) -> list[dict[str, int]]:
        return [self[key] for key in keys]


class Own:
    """A user's sampler, which reads one position at a time."""

    def __init__(self, sampler: Any, names: bool) -> None:
        self.sampler = sampler
        self.names = names

    def __len__(self) -> int:
        return len(self.sampler)

    def __getitem__(self, index: int) -> Any:
        metadata = self.sampler[index]
        if self.names:
            metadata.record_key = str(metadata.record_key)
        return metadata

    def __repr__(self) -> str:
        return f"Own({self.sampler!r}, {self.names})"


@dataclasses.dataclass(frozen=True)
class Double(g.MapTransform):
    bad: frozenset[int] = frozenset()

    def map(self, row):
        if row["key"] in self.bad:
            raise KeyError(row["key"])
        return {**row, "value": 2 * row["value"] + 1}


@dataclasses.dataclass(frozen=True)
class Triple(g.BlockMap):
    """Changes several rows at once, including those before a bad one."""

    bad: frozenset[int] = frozenset()
    block_size = 5

    def block_map(self, rows):
        for row in rows:
            if row["key"] in self.bad:
                raise LookupError(row["key"])
            row["value"] = 3 * row.pop("value")
        return rows


@dataclasses.dataclass(frozen=True)
class Draw(g.RandomMapTransform):
    bad: frozenset[int] = frozenset()

    def random_map(self, row, rng):
        drawn = int(rng.integers(1000))
        # Fail after the draw: a substitute must not be affected by it.
        if row["key"] in self.bad:
            raise ArithmeticError(row["key"])
        return {**row, "value": row["value"] + drawn}


@dataclasses.dataclass(frozen=True)
class Number(g.MapWithIndex):
    bad: frozenset[int] = frozenset()

    def map_with_index(self, index, row):
        if row["key"] in self.bad:
            raise IndexError(index)
        return {**row, "value": row["value"] + 7 * index}


@dataclasses.dataclass(frozen=True)
class Some(g.FilterTransform):
    bad: frozenset[int] = frozenset()

    def filter(self, row):
        if row["key"] in self.bad:
            raise RuntimeError(row["key"])
        return row["value"] % 3 != 1


@dataclasses.dataclass(frozen=True)
class Parts(g.FlatMapTransform):
    """Yields key % 4 rows, with the keys 100 * part + key."""

    bad: frozenset[int] = frozenset()
    max_fan_out = 4

    def flat_map(self, row):
        if row["key"] in self.bad:
            raise ValueError(row["key"])
        count = row["key"] % 4
        return [{**row, "key": row["key"] + 100 * part} for part in range(count)]


STEPS = (Double, Triple, Draw, Number, Some, Parts)


@dataclasses.dataclass(frozen=True)
class Case:
    """The description of a pipeline."""

    on_error: str
    records: int = 20
    bad_reads: frozenset[int] = frozenset()
    steps: tuple[Any, ...] = ()
    batch: int = 0
    drop_remainder: bool = False
    streams: int = 1
    shuffle: bool = False
    epochs: int = 1
    together: bool = False
    keys: str = "blocks"  # or "single" or "names"

    @property
    def sampler(self) -> Any:
        sampler = g.IndexSampler(
            self.records, shuffle=self.shuffle, num_epochs=self.epochs, seed=5
        )
        return sampler if self.keys == "blocks" else Own(sampler, self.keys == "names")


def loader(case: Case, workers: int = 0, **options: Any) -> Any:
    operations = list(case.steps)
    if case.batch:
        operations.append(g.Batch(case.batch, drop_remainder=case.drop_remainder))
    source = RowsTogether if case.together else Rows
    return g.DataLoader(
        data_source=source(case.records, case.bad_reads),
        sampler=case.sampler,
        shard_options=g.NoSharding(),
        operations=operations,
        worker_count=workers,
        streams=case.streams,
        on_error=case.on_error,
        **options,
    )


class Bad(Exception):
    """Marks a failed element and contains its log entry."""

    def __init__(self, key, index, operation, error):
        super().__init__()
        self.entry = {
            "key": key,
            "index": index,
            "operation": operation,
            "error": type(error).__name__,
            "message": str(error),
            "substitute": None,
        }


@dataclasses.dataclass
class Turn:
    """The result of one turn of a stream: an output or None, and the log before it."""

    output: Any
    log: list[dict[str, Any]]


def turns(case: Case) -> list[Turn]:
    """Return all turns of all streams, in order."""
    streams = [list(_stream(case, stream)) for stream in range(case.streams)]
    interleaved = itertools.zip_longest(*streams)
    return [turn for row in interleaved for turn in row if turn is not None]


def _stream(case: Case, stream: int) -> Iterator[Turn]:
    log: list[dict[str, Any]] = []
    batch: list[Any] = []
    for element in _elements(case, stream):
        if isinstance(element, Bad):
            log.append({**element.entry, "stream": stream})
            continue
        batch.append(element)
        if len(batch) >= max(case.batch, 1):
            yield Turn(stacked(batch) if case.batch else batch[0], log)
            log, batch = [], []
    if batch and not case.drop_remainder:
        yield Turn(stacked(batch), log)
    elif log:
        yield Turn(None, log)


def _elements(case: Case, stream: int) -> Iterator[Any]:
    """Yield the stream's elements, with a `Bad` in place of each failure."""
    places = range(stream, case.records * case.epochs, case.streams)
    for position in range(len(places)):
        made = list(_made_of(case, places[position], places[position]))
        bad = next((one for one in made if isinstance(one, Bad)), None)
        if case.on_error == "skip" or bad is None:
            yield from made
            continue
        for other in others(position, len(places)):
            instead = list(_made_of(case, places[position], places[other]))
            if not any(isinstance(one, Bad) for one in instead):
                bad.entry["substitute"] = case.sampler[places[other]].record_key
                yield bad
                yield from instead
                break
        else:
            raise AssertionError("nothing takes its place")


def others(position: int, length: int) -> list[int]:
    assert length <= 1024
    near = [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, 512]
    order = random.Random(position)
    rest = [n for n in range(1, length) if n not in near]
    shuffled = sorted(rest, key=lambda _: order.random())
    return [(position + n) % length for n in near + shuffled if n < length]


def _made_of(case: Case, place: int, read_at: int) -> Iterator[Any]:
    """Yield the results, failures included, of one place's record at another place."""
    metadata = case.sampler[place]
    key = case.sampler[read_at].record_key
    try:
        row = Rows(case.records, case.bad_reads)[key]
    except Exception as error:
        yield Bad(key, metadata.index, "read", error)
        return
    yield from _through(case.steps, row, key, metadata.index, metadata.rng)


def _through(steps: Any, row: Any, key: int, index: int, rng: Any) -> Iterator[Any]:
    if not steps:
        yield row
        return
    step, rest = steps[0], steps[1:]
    try:
        rows = [(index, _applied(step, row, index, rng))]
        if isinstance(step, Some):
            rows = [(index, row)] if rows[0][1] else []
        elif isinstance(step, Parts):
            rows = [(4 * index + part, one) for part, one in enumerate(rows[0][1])]
    except Exception as error:
        yield Bad(key, index, type(step).__name__, error)
        return
    for number, one in rows:
        yield from _through(rest, copy.copy(one), key, number, rng)


def _applied(step: Any, row: Any, index: int, rng: Any) -> Any:
    match step:
        case Double():
            return step.map(row)
        case Triple():
            return step.block_map([dict(row)])[0]
        case Draw():
            return step.random_map(row, rng)
        case Number():
            return step.map_with_index(index, row)
        case Some():
            return step.filter(row)
        case _:
            return step.flat_map(row)


def stacked(rows: list[Any]) -> dict[str, Any]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def plain(output: Any) -> Any:
    """Return an output in a form that compares."""
    return {name: np.asarray(value).tolist() for name, value in output.items()}
