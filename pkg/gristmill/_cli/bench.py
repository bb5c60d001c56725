"""``gristmill bench``: measures how fast the records of a file are read."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gristmill import _core, loader, samplers, sources, transforms
from gristmill._base.types import Int64Array
from gristmill._cli.terminal import STYLE, amount, count, number_from, rate, table
from gristmill._convert import finding
from gristmill._convert.inputs import TFRecordInput, reading, steps_of
from gristmill._convert.paths import regular
from gristmill._convert.problem import Problem

DESCRIPTION = """\
Measure how fast the records of an ArrayRecord or an uncompressed TFRecord file are
read: in order, shuffled, and shuffled through a DataLoader.  The same bytes are read
beside it with bare preads: 1 MiB each in order; shuffled, one for each record, or for
each chunk of records.  The last column is the speed in parts of that, in records per
second.  The preads are a loop in Python: in order it is as fast as the system; small
records shuffled are read by it more slowly than by Gristmill's native code.

The file is read once before, so that it is in memory if it fits there; every record's
checksum is compared.  The index of a TFRecord file is kept beside it, as a DataLoader
that reads it does.
"""

EPILOG = """\
examples:
  gristmill bench train.array_record
  gristmill bench train.array_record --workers 0,4,8 --seconds 5
"""
NOTE = """\
pread shuffled is a Python loop of one os.preadv a record or chunk: where these are
small, it shows the cost of Python, and more than 1.00 of it can be reached.
"""
BLOCK_BYTES = 1 << 20
SEED = 0
# More than this is not read in the time; of larger files it is a part.
MOST_RECORDS, MOST_STEPS = 5_000_000, 10_000


class Rate(NamedTuple):
    """What was read in a time."""

    name: str
    records: float
    record_bytes: int
    seconds: float
    # Records per second of bare preads; 0 for their own rows.
    limit: float = 0.0

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds


def add_to(commands: Any) -> None:
    """Add the command to the parser of `gristmill`."""
    purpose = "measure how fast a file is read, beside bare preads"
    parser = commands.add_parser(
        "bench", help=purpose, description=DESCRIPTION, epilog=EPILOG, **STYLE
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="an ArrayRecord or TFRecord file")
    add(
        "--workers",
        type=_numbers,
        default=[0, 2],
        metavar="N,N,...",
        help="numbers of worker processes of the DataLoader (default: 0,2)",
    )
    add(
        "--batch-size",
        type=number_from(1),
        default=256,
        metavar="N",
        help="records that are asked for together (default: %(default)s)",
    )
    add(
        "--seconds",
        type=_seconds,
        default=1.0,
        metavar="S",
        help="how long each row is measured (default: %(default)s)",
    )
    add("--json", action="store_true", help="print a JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure a file, and print a table."""
    (path,) = finding.expand([arguments.file])
    if not os.path.isdir(path):
        regular(path)
    with reading(path):
        source, reader, places = _open(path)
        if not len(reader):
            raise Problem(f"{path}: it has no records, so there is nothing to measure.")
        _warm(path)
        rates = list(_measure(source, reader, places, arguments))
    print(_as_json(path, rates) if arguments.json else _as_table(path, reader, rates))
    return 0


# Where the bytes of some records lie: two arrays, where they begin and end.
Places = Callable[[Int64Array], tuple[Int64Array, Int64Array]]


def _open(path: str) -> tuple[Any, _core.RecordReader, Places]:
    """Return the file as a source, as a reader, and the places of its records."""
    form = finding.format_of(path, choices=())
    if form == "array_record":
        file = _core.RecordFile(path)

        def limits_of(records: Int64Array) -> tuple[Int64Array, Int64Array]:
            chunks = (records // file.group_size).tolist()
            limits = np.array([file.chunk(chunk)[:2] for chunk in chunks], np.int64)
            return limits[:, 0], limits[:, 1]

        return sources.ArrayRecordDataSource(path), file, limits_of
    if form == "tfrecord" and not TFRecordInput(path).compression:
        reader = TFRecordInput(path).open()
        # Each record has 12 bytes before and 4 behind it.
        ends = np.cumsum(reader.sizes(np.arange(len(reader))) + 16)
        begins = np.concatenate([[0], ends[:-1]])
        source = sources.TFRecordDataSource(path)
        return source, reader, lambda records: (begins[records], ends[records])
    raise Problem(
        f"{path}: only ArrayRecord and uncompressed TFRecord files can be read in any"
        f" order. Convert it with: gristmill convert {path} OUT"
    )


def _warm(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.read(BLOCK_BYTES):
            pass


def _measure(
    source: Any,
    reader: _core.RecordReader,
    places: Places,
    arguments: argparse.Namespace,
) -> Iterator[Rate]:
    batch_size, seconds = arguments.batch_size, arguments.seconds
    order = np.empty(min(len(reader), MOST_RECORDS), np.int64)
    _core.KeyPlan.range(len(reader)).shuffle(SEED).fill(0, 1, order)
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    bare = _total("pread in order", _preads_in_order(reader), seconds)
    yield bare
    in_order = list(itertools.islice(steps_of(reader), MOST_STEPS))
    reads = _reads(reader, in_order)
    yield _total("read in order", reads, seconds, bare.records_per_s)
    bare = _total("pread shuffled", _preads(reader, places, batches), seconds)
    yield bare
    limit = bare.records_per_s
    yield _total("read shuffled", _reads(reader, batches), seconds, limit)
    for number in arguments.workers:
        name = f"DataLoader, {count(number, 'worker')}"
        yield _total(name, _loads(source, number, batch_size), seconds, limit)


# Records, their bytes, and the time that these took, in s.
Step: TypeAlias = tuple[float, int, float]


def _total(
    name: str, steps: Iterator[Step], seconds: float, limit: float = 0.0
) -> Rate:
    """Take steps for so long, and add them up."""
    records, done, elapsed = 0.0, 0, 0.0
    while elapsed < seconds:
        some, size, took = next(steps)
        records += some
        done += size
        elapsed += took
    return Rate(name, records, done, elapsed, limit)


def _preads_in_order(reader: _core.RecordReader) -> Iterator[Step]:
    size = os.path.getsize(reader.path)
    buffer = bytearray(BLOCK_BYTES)
    at = 0
    with open(reader.path, "rb", buffering=0) as file:
        while True:
            start = time.perf_counter()
            done = os.preadv(file.fileno(), [buffer], at)
            yield done / size * len(reader), done, time.perf_counter() - start
            at = (at + done) % size


def _preads(
    reader: _core.RecordReader, places: Places, batches: list[Int64Array]
) -> Iterator[Step]:
    with open(reader.path, "rb", buffering=0) as file:
        number = file.fileno()
        for batch in itertools.cycle(batches):
            # Records of one chunk are read by one pread.
            begins, ends = np.unique(places(batch), axis=1)
            buffer = memoryview(bytearray(int((ends - begins).max())))
            sizes = (ends - begins).tolist()
            wanted = list(zip(begins.tolist(), sizes, strict=True))
            done = 0
            start = time.perf_counter()
            for offset, size in wanted:
                done += os.preadv(number, [buffer[:size]], offset)
            yield len(batch), done, time.perf_counter() - start


def _reads(reader: _core.RecordReader, batches: list[Int64Array]) -> Iterator[Step]:
    for batch in itertools.cycle(batches):
        start = time.perf_counter()
        contents, _ = reader.read_many(batch, packed=True)
        yield len(batch), len(contents), time.perf_counter() - start


def _loads(source: Any, workers: int, batch_size: int) -> Iterator[Step]:
    """Take batches of a DataLoader after its first, when its workers are there."""
    batches: Any = iter(
        loader.DataLoader(
            data_source=source,
            sampler=samplers.IndexSampler(len(source), shuffle=True, seed=SEED),
            operations=[transforms.Batch(batch_size, batch_fn=list)],
            worker_count=workers,
        )
    )
    next(batches)
    start = time.perf_counter()
    for batch in batches:
        size = sum(map(len, batch))
        yield len(batch), size, time.perf_counter() - start
        start = time.perf_counter()


def _as_table(path: str, reader: _core.RecordReader, rates: list[Rate]) -> str:
    rows = [("", "records/s", "MB/s", "of pread")]
    for each in rates:
        share = f"{each.records_per_s / each.limit:.2f}" if each.limit else ""
        megabytes = each.record_bytes / each.seconds / 1e6
        rows.append((each.name, rate(each.records_per_s), rate(megabytes), share))
    size = amount(os.path.getsize(path))
    title = f"{path}: {count(len(reader), 'record')}, {size}"
    return f"{title}\n\n{table(rows)}\n\n{NOTE.rstrip()}"


def _as_json(path: str, rates: list[Rate]) -> str:
    rows = [
        {
            "name": each.name,
            "records_per_s": each.records_per_s,
            "bytes_per_s": each.record_bytes / each.seconds,
            "of_pread": each.records_per_s / each.limit if each.limit else None,
        }
        for each in rates
    ]
    return json.dumps({"path": path, "rates": rows})


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0,2,4")
    return [int(part) for part in parts]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 3600.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
