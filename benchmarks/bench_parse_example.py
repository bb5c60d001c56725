"""Measures parsing a tf.train.Example on one core.

Prints ns of CPU time per record, of all threads; lower is better.  An Example has an
int64 label, float32[16], 256 int64 tokens below 50,257 and a string, 828 bytes in all;
4,096 of them are held in memory.  Every contestant makes NumPy arrays of each record:

"gristmill" is ``ParseExample.map`` called in a Python loop, and "gristmill loader" a
DataLoader that reads a list in order, without batches.  "tensorflow" is
``tf.io.parse_single_example`` in a ``tf.data`` map with a private pool of one thread,
and "tensorflow, counted" the same without handing the arrays to Python: the records
are only counted by TensorFlow. "gristmill block" has no target: it parses all
features but the string, 256 records at once, with `ParseExample.decode_block`.
All processes are bound to one core.

    python benchmarks/bench_parse_example.py
"""

import functools
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import peers
from harness import AtLeast, Measurement, Question, Settings, main

RECORDS = 4096
BLOCK = 256
NUMBERS = {"label": ((), "int64"), "x": ((16,), "float32"), "tokens": ((256,), "int64")}
FEATURES = {**NUMBERS, "name": ((), "bytes")}

Record = dict[str, Any]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _example(i: int, rng: np.random.Generator) -> bytes:
    tokens = rng.integers(0, 50_257, 256).tolist()
    features = {
        "label": _field(3, _field(1, _varint(i % 1000))),
        "x": _field(2, _field(1, struct.pack("<16f", *rng.random(16)))),
        "tokens": _field(3, _field(1, b"".join(map(_varint, tokens)))),
        "name": _field(1, _field(1, b"record %d" % i)),
    }
    entries = (
        _field(1, _field(1, name.encode()) + _field(2, feature))
        for name, feature in features.items()
    )
    return _field(1, b"".join(entries))


def records() -> list[bytes]:
    """Returns the serialized Examples; one seed makes the same everywhere."""
    rng = np.random.default_rng(0)
    return [_example(i, rng) for i in range(RECORDS)]


def _digest(parsed: Iterator[Record]) -> str:
    """Digests names, dtypes, shapes and bytes of one pass over the records."""
    digest = count = 0
    for record in parsed:
        for name in sorted(record):
            value = np.asarray(record[name])
            kind = "bytes" if value.dtype.kind in "SO" else value.dtype.str
            data = value.item() if kind == "bytes" else value.tobytes()
            text = f"{name} {kind} {value.shape}".encode()
            digest = zlib.crc32(data, zlib.crc32(text, digest))
        count += 1
    return f"{count} records {digest:x}"


def _ns_per_record(one_pass: Callable[[], int], settings: Settings) -> float:
    one_pass()
    count, start = 0, time.process_time()
    deadline = time.perf_counter() + settings.seconds
    while count == 0 or time.perf_counter() < deadline:
        count += one_pass()
    return (time.process_time() - start) / count * 1e9


def _on_one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _parser(features: dict[str, Any]) -> Any:
    transforms = peers.import_gristmill().transforms
    return transforms.ParseExample(
        {name: transforms.FixedLen(*feature) for name, feature in features.items()}
    )


def _map(settings: Settings) -> Measurement:
    _on_one_core()
    parse, data = _parser(FEATURES).map, records()

    def one_pass() -> int:
        for record in data:
            parse(record)
        return len(data)

    value = _ns_per_record(one_pass, settings)
    return Measurement(value, {"records": _digest(map(parse, data))})


def _loader(settings: Settings) -> Measurement:
    _on_one_core()
    gristmill, data = peers.import_gristmill(), records()

    def load() -> Any:
        return gristmill.DataLoader(
            data_source=data,
            sampler=gristmill.SequentialSampler(len(data)),
            operations=[_parser(FEATURES)],
        )

    value = _ns_per_record(lambda: sum(1 for _ in load()), settings)
    return Measurement(value, {"records": _digest(iter(load()))})


def _block(settings: Settings) -> Measurement:
    _on_one_core()
    parser, data = _parser(NUMBERS), records()
    blocks = [data[i : i + BLOCK] for i in range(0, len(data), BLOCK)]
    packed = [
        (
            np.frombuffer(b"".join(block), np.uint8),
            np.cumsum([0, *map(len, block)], dtype=np.int64),
        )
        for block in blocks
    ]

    def one_pass() -> int:
        for block in packed:
            parser.decode_block(*block)
        return len(data)

    return Measurement(_ns_per_record(one_pass, settings))


def _tensorflow(counted: bool, settings: Settings) -> Measurement:
    _on_one_core()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    features = {
        name: tf.io.FixedLenFeature(shape, tf.string if dtype == "bytes" else dtype)
        for name, (shape, dtype) in FEATURES.items()
    }
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    parsed = (
        tf.data.Dataset.from_tensor_slices(records())
        .map(lambda record: tf.io.parse_single_example(record, features))
        .with_options(options)
    )

    def one_pass() -> int:
        if counted:
            return int(parsed.reduce(np.int64(0), lambda count, _: count + 1))
        return sum(1 for _ in parsed.as_numpy_iterator())

    value = _ns_per_record(one_pass, settings)
    return Measurement(value, {"records": _digest(parsed.as_numpy_iterator())})


QUESTION = Question(
    name="parse_example",
    text="tf.train.Example of 828 bytes to arrays, one core",
    unit="ns CPU/record",
    contestants={
        "gristmill": _map,
        "gristmill loader": _loader,
        "gristmill block": _block,
        "tensorflow": functools.partial(_tensorflow, False),
        "tensorflow, counted": functools.partial(_tensorflow, True),
    },
    targets=(
        AtLeast(3, ("tensorflow", "tensorflow, counted")),
        AtLeast(3, ("tensorflow", "tensorflow, counted"), ours="gristmill loader"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
