"""Builds one described DataLoader pipeline in Grain or in Gristmill.

A description (see descriptions.py) is plain JSON. ``build`` makes a DataLoader of
either library from it. ``trace`` runs the loader and records everything exactly:
container types, key order, dtypes, shapes and bytes of every element, and the bytes of
the iterator's states.
"""

import collections
import dataclasses
import functools
import hashlib
import importlib
import itertools
import json
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from differential.strange import StrangeSource, UnsizedSource

Description = dict[str, Any]

OURS = "gristmill"
THEIRS = "grain"

Point = collections.namedtuple("Point", ["x", "y"])


def ready(library: str) -> Any:
    """Import ``library`` and its legacy namespace; return the legacy one."""
    if library == "grain":
        # Grain refuses to start workers in a program that has not parsed flags.
        absl_flags = importlib.import_module("absl.flags")
        absl_flags.FLAGS.mark_as_parsed()
    importlib.import_module(library)
    return importlib.import_module(f"{library}.python")


# Canonical form.


def canonical(element: Any, key_order: bool = True) -> Any:
    """Return nested lists of strings that are equal only for equal elements.

    Subclasses of ndarray count as ndarray, because Grain returns SharedMemoryArray and
    Gristmill plain arrays. Without ``key_order`` the order of a dict's keys does not
    count, as for ==.
    """
    inner = functools.partial(canonical, key_order=key_order)
    if isinstance(element, np.ndarray):
        head = ["array", str(element.dtype.descr), list(element.shape)]
        if element.dtype.hasobject:
            return [*head, [inner(item) for item in element.ravel()]]
        payload = np.ascontiguousarray(element).tobytes()
        return [*head, hashlib.blake2b(payload, digest_size=8).hexdigest()]
    if isinstance(element, np.generic):
        return ["scalar", str(element.dtype.descr), element.tobytes().hex()]
    name = type(element).__name__
    if isinstance(element, dict):
        items = [[repr(key), inner(value)] for key, value in element.items()]
        return [name, items if key_order else sorted(items, key=lambda item: item[0])]
    if isinstance(element, (list, tuple)):
        return [name, [inner(item) for item in element]]
    return [name, repr(element)]


def digest(element: Any, key_order: bool = True) -> str:
    """Return a digest of ``element``, 12 hexadecimal digits."""
    text = json.dumps(canonical(element, key_order)).encode()
    return hashlib.blake2b(text, digest_size=6).hexdigest()


def number_of(element: Any) -> int:
    """Return an int in [0, 2**24) that depends on every bit of ``element``."""
    return int(digest(element)[:6], 16)


# User code: functions that the operations of the pipelines apply.


def lift(function: Callable[[Any], Any], element: Any) -> Any:
    """Apply ``function`` to every numeric leaf of a tree, in the tree's order."""
    if isinstance(element, dict):
        return {key: lift(function, value) for key, value in element.items()}
    if hasattr(element, "_fields"):
        return type(element)(*(lift(function, item) for item in element))
    if isinstance(element, (list, tuple)):
        return type(element)(lift(function, item) for item in element)
    if element is None or np.asarray(element).dtype.kind not in "iufc":
        return element
    return function(element)


def _image(arg: int, element: Any) -> np.ndarray:
    pixels = np.arange(12) * (arg + 1) + number_of(element)
    return (pixels % 251).astype(np.uint8).reshape(4, 3)


def _maybe_none(arg: int, element: Any) -> Any:
    return None if number_of(element) % 3 == arg % 3 else element


def _structured(arg: int, element: Any) -> np.ndarray:
    row = (number_of(element), arg / 2)
    return np.array([row], dtype=[("id", "<i4"), ("weight", "<f8")])


MAPS: dict[str, Callable[[int, Any], Any]] = {
    "add": lambda arg, x: lift(lambda leaf: leaf + arg, x),
    "scale": lambda arg, x: lift(lambda leaf: leaf * (arg / 4), x),
    "negate": lambda arg, x: lift(operator.neg, x),
    "record": lambda arg, x: {"value": x, "double": lift(lambda a: a * 2, x)},
    "pair": lambda arg, x: (x, np.float32(arg)),
    "point": lambda arg, x: Point(x, [arg, np.int16(arg)]),
    "image": _image,
    "strided": lambda arg, x: _image(arg, x)[::-1, ::2],
    "fortran": lambda arg, x: np.asfortranarray(_image(arg, x)),
    "empty": lambda arg, x: {"x": x, "nothing": np.zeros((0, arg), np.int16)},
    "zero_d": lambda arg, x: np.array(number_of(x) % 100, np.int32),
    "text": lambda arg, x: "é" * (number_of(x) % 4) + str(arg),
    "bytes": lambda arg, x: (b"ab" * (number_of(x) % 4), x),
    "bool": lambda arg, x: (bool(number_of(x) % 2), x),
    "complex": lambda arg, x: np.full(2, number_of(x) + arg * 1j, np.complex64),
    "half": lambda arg, x: np.full((arg, 1), number_of(x) % 1000, np.float16),
    "date": lambda arg, x: np.datetime64(number_of(x), "s"),
    "objects": lambda arg, x: np.array([arg, "a", None], dtype=object),
    "structured": _structured,
    "with_none": lambda arg, x: {"x": x, "missing": None},
    "maybe_none": _maybe_none,
}


def _noise(arg: int, x: Any, rng: np.random.Generator) -> Any:
    return {"x": x, "noise": rng.normal(size=arg + 1).astype(np.float32)}


def _mixture(arg: int, x: Any, rng: np.random.Generator) -> Any:
    return [x, rng.permutation(arg + 2), rng.random(), int(rng.integers(2**40))]


RANDOM_MAPS: dict[str, Callable[[int, Any, np.random.Generator], Any]] = {
    "uniform": lambda arg, x, rng: lift(lambda leaf: leaf + rng.uniform(0, 9), x),
    "integers": lambda arg, x, rng: (x, int(rng.integers(0, 10 ** (arg + 1)))),
    "normal": _noise,
    "mixture": _mixture,
    "flip": lambda arg, x, rng: lift(operator.neg, x) if rng.random() < 0.5 else x,
}


def apply_map(function: str, arg: int, element: Any) -> Any:
    return MAPS[function](arg, element)


def apply_random_map(
    function: str, arg: int, element: Any, rng: np.random.Generator | None
) -> Any:
    """Draw as the named function does; return ``element`` unchanged without rng."""
    return element if rng is None else RANDOM_MAPS[function](arg, element, rng)


def keep(modulus: int, residue: int, element: Any) -> bool:
    return number_of(element) % modulus != residue


def split(fan_out: int, shape: str, element: Any) -> Any:
    """Return 0 to ``fan_out`` parts of ``element``."""
    count = number_of(element) % (fan_out + 1)
    parts = ((element, part) for part in range(count))
    return {"list": list, "tuple": tuple, "iterator": iter}[shape](parts)


def batch_as_list(elements: Sequence[Any]) -> list[Any]:
    return list(elements)


def batch_summary(elements: Sequence[Any]) -> dict[str, Any]:
    numbers = np.array([number_of(element) for element in elements])
    return {"sum": numbers.sum(), "first": elements[0], "count": len(elements)}


BATCH_FUNCTIONS = {"list": batch_as_list, "summary": batch_summary}


def pairs(record_type: type, arg: int, records: Iterator[Any]) -> Iterator[Any]:
    """Yield two records as one, dropping an unpaired last record."""
    for first in records:
        for second in itertools.islice(records, 1):
            yield record_type(second.metadata, (first.data, second.data))


def reveal(record_type: type, arg: int, records: Iterator[Any]) -> Iterator[Any]:
    """Yield everything that an operation can see of a record."""
    for record in records:
        metadata = record.metadata
        seen = (record.data, metadata.index, metadata.record_key)
        yield record_type(metadata, seen)


def window(record_type: type, arg: int, records: Iterator[Any]) -> Iterator[Any]:
    """Yield each record ``arg`` records late; states do not contain held records."""
    ahead: collections.deque[Any] = collections.deque()
    for record in records:
        ahead.append(record)
        if len(ahead) > arg:
            yield ahead.popleft()
    yield from ahead


USER_OPERATIONS = {"pairs": pairs, "reveal": reveal, "window": window}


# Builders.


@functools.cache
def _kit(library: str) -> types.SimpleNamespace:
    """Return the operation classes, derived from the library's own bases."""
    legacy = ready(library)
    package = importlib.import_module(library)

    @dataclasses.dataclass
    class Map(legacy.MapTransform):
        function: str
        arg: int

        def map(self, element):
            return apply_map(self.function, self.arg, element)

    @dataclasses.dataclass
    class RandomMap(legacy.RandomMapTransform):
        function: str
        arg: int

        def random_map(self, element, rng):
            return apply_random_map(self.function, self.arg, element, rng)

    @dataclasses.dataclass
    class TfRandomMap(package.transforms.TfRandomMap):
        function: str
        arg: int

        def np_random_map(self, element, rng):
            return apply_random_map(self.function, self.arg, element, rng)

    @dataclasses.dataclass
    class Filter(legacy.FilterTransform):
        modulus: int
        residue: int

        def filter(self, element):
            return keep(self.modulus, self.residue, element)

    @dataclasses.dataclass
    class FlatMap(package.experimental.FlatMapTransform):
        max_fan_out: int
        shape: str

        def flat_map(self, element):
            return split(self.max_fan_out, self.shape, element)

    return types.SimpleNamespace(
        Map=Map,
        RandomMap=RandomMap,
        TfRandomMap=TfRandomMap,
        Filter=Filter,
        FlatMap=FlatMap,
    )


class TableSampler:
    """A user's sampler with keys from a table and random numbers by position.

    ``index_of`` maps a position to the index in its metadata.
    """

    def __init__(
        self,
        keys: Sequence[int],
        seed: int | None,
        metadata: type,
        index_of: Callable[[int], int] = int,
    ):
        self._keys = list(keys)
        self._seed = seed
        self._metadata = metadata
        self._index_of = index_of

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self._keys):
            raise IndexError(index)
        rng = None
        if self._seed is not None:
            rng = np.random.Generator(np.random.Philox(key=self._seed * 7 + index))
        return self._metadata(
            index=self._index_of(index), record_key=self._keys[index], rng=rng
        )

    def __repr__(self) -> str:
        return f"TableSampler({self._keys}, {self._seed})"


class SizedTableSampler(TableSampler):
    """A TableSampler with a length."""

    def __len__(self) -> int:
        return len(self._keys)


INDICES: dict[str, Callable[[int], int]] = {
    "position": int,
    "same": lambda position: 7,
    "backwards": lambda position: 100 - position,
    "in_pairs": lambda position: position // 2,
}


def build_source(source: Description, legacy: Any) -> Any:
    """Return the data source, whose values depend on the position alone."""
    kind, size = source["kind"], source["size"]
    if kind == "strange":
        chosen = StrangeSource if source["sized"] else UnsizedSource
        return chosen(size, source["values"], source["container"])
    if kind == "range":
        start, step = source["start"], source["step"]
        return legacy.RangeDataSource(start, start + size * step, step)
    if kind in ("list", "tuple"):
        values = [(7 * i) % 31 - 5 for i in range(size)]
        return values if kind == "list" else tuple(values)
    if kind == "rows":
        shape = (size, *source["shape"])
        table = np.arange(np.prod(shape)) * 3 % 101
        return table.reshape(shape).astype(source["dtype"])
    return [
        {
            "label": i % 10,
            "image": np.full((2, 3), i, np.float32),
            "id": (np.int64(i), float(i) / 3),
            "name": f"record {i}",
        }
        for i in range(size)
    ]


def _shards(options: Any, legacy: Any) -> Any:
    """Return ShardOptions for [index, count, drop]; NoSharding for "none"."""
    return legacy.NoSharding() if options == "none" else legacy.ShardOptions(*options)


def build_sampler(sampler: Description, legacy: Any) -> Any:
    """Return the sampler: one of the library's two, or a user's."""
    if sampler["kind"] == "table":
        chosen = SizedTableSampler if sampler["sized"] else TableSampler
        keys = np.array(sampler["keys"]) if "numpy" in sampler else sampler["keys"]
        index_of = INDICES[sampler.get("index", "position")]
        return chosen(keys, sampler["seed"], legacy.RecordMetadata, index_of)
    shards = _shards(sampler["shards"], legacy)
    if sampler["kind"] == "sequential":
        return legacy.SequentialSampler(
            sampler["num_records"], shard_options=shards, seed=sampler["seed"]
        )
    return legacy.IndexSampler(
        sampler["num_records"],
        shard_options=shards,
        shuffle=sampler["shuffle"],
        num_epochs=sampler["num_epochs"],
        seed=sampler["seed"],
    )


def build_operation(operation: Description, library: str, legacy: Any) -> Any:
    """Return the operation, spelled in its "style"."""
    kit = _kit(library)
    kind, style, arg = operation["op"], operation["style"], operation["arg"]
    function = operation["function"]
    if kind == "map":
        if style == "legacy":
            return legacy.MapOperation(functools.partial(apply_map, function, arg))
        return kit.Map(function, arg)
    if kind == "random_map":
        if style == "legacy":
            drawn = functools.partial(apply_random_map, function, arg)
            return legacy.RandomMapOperation(drawn)
        return (kit.TfRandomMap if style == "tf" else kit.RandomMap)(function, arg)
    if kind == "filter":
        if style == "legacy":
            return legacy.FilterOperation(functools.partial(keep, arg, 0))
        return kit.Filter(arg, 0)
    if kind == "flat_map":
        return kit.FlatMap(arg, function)
    if kind == "user":
        return functools.partial(USER_OPERATIONS[function], legacy.Record, arg)
    batch = legacy.BatchOperation if style == "legacy" else legacy.Batch
    return batch(
        arg,
        drop_remainder=operation["drop_remainder"],
        batch_fn=BATCH_FUNCTIONS.get(function),
    )


def build(description: Description, library: str, **overrides: Any) -> Any:
    """Return the described DataLoader of "grain" or "gristmill".

    ``overrides`` replace or add arguments of the DataLoader.
    """
    legacy = ready(library)
    loader = description["loader"]
    arguments: dict[str, Any] = {
        "data_source": build_source(description["source"], legacy),
        "sampler": build_sampler(description["sampler"], legacy),
        "operations": [
            build_operation(operation, library, legacy)
            for operation in description["operations"]
        ],
        "worker_count": loader["workers"],
        "worker_buffer_size": loader["buffer"],
    }
    if loader["shards"] is not None:
        arguments["shard_options"] = _shards(loader["shards"], legacy)
    if loader["read"] is not None:
        threads, ahead = loader["read"]
        arguments["read_options"] = legacy.ReadOptions(threads, ahead)
    return legacy.DataLoader(**(arguments | overrides))


# Runs.


@dataclasses.dataclass
class Trace:
    """The output of one run of a pipeline.

    Attributes:
        elements: Digest of each element, in order.
        states: Bytes of get_state() before element k, for each asked k; the key
            "end" is the state after StopIteration.
        error: Exception raised after the last element, if any.
    """

    elements: list[str]
    states: dict[int | str, bytes]
    error: Exception | None = None


def delivered(description: Description, element: Any) -> str:
    """Return the digest of an element from the described loader.

    Grain sorts the keys of every dict that comes from a worker process, batched or not,
    so with workers the order of keys is not compared.
    """
    return digest(element, key_order=description["loader"]["workers"] == 0)


def trace(
    iterator: Any,
    description: Description,
    take: int | None = None,
    may_fail: bool = False,
) -> Trace:
    """Run ``iterator`` for ``take`` elements, the description's "take" by default.

    Record the state before every element and after the last, and check that str() of
    the iterator contains it. With ``may_fail`` an exception ends the run.
    """
    take = description["take"] if take is None else take
    seen = Trace([], {})
    for position in itertools.count():
        seen.states[position] = grains_part(description, _state_of(iterator))
        if position == take:
            return seen
        try:
            element = next(iterator)
        except StopIteration:
            seen.states["end"] = grains_part(description, _state_of(iterator))
            return seen
        except Exception as error:
            if not may_fail:
                raise
            seen.error = error
            return seen
        seen.elements.append(delivered(description, element))
    raise AssertionError("unreachable")


def _state_of(iterator: Any) -> bytes:
    state = iterator.get_state()
    assert str(iterator) == f"PyGrainDatasetIterator(state={state.decode()})"
    return state


def grains_part(description: Description, state: bytes) -> bytes:
    """Return a state without the key that Gristmill adds for user operations.

    User operations may hold records back. Grain forgets these; Gristmill's extra key
    stores the position to recompute them from. No other pipeline may have the key.
    """
    if not any(op["function"] in USER_OPERATIONS for op in description["operations"]):
        return state
    content = json.loads(state)
    content.pop("gristmill", None)
    return json.dumps(content, indent=4).encode()


def rest(
    loader: Any, description: Description, state: bytes, done: int = 0
) -> list[str]:
    """Return the digests from a fresh iterator after set_state(state).

    Args:
        loader: The loader to iterate, built from the description.
        description: Its description; an endless loader stops after its "take".
        state: The state after ``done`` elements.
        done: Elements already counted against "take", if there is one.
    """
    iterator = iter(loader)
    iterator.set_state(state)
    return remaining(iterator, description, done)


def remaining(iterator: Any, description: Description, done: int) -> list[str]:
    """Return the digests of the remaining elements of ``iterator``, like ``rest``."""
    take = description["take"]
    left = None if take is None else take - done
    return [
        delivered(description, element) for element in itertools.islice(iterator, left)
    ]
