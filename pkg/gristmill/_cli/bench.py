"""``gristmill bench``: measures how fast the records of files are read."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gristmill import _core, loader, samplers, transforms
from gristmill._base.sizes import size_of
from gristmill._base.types import Int64Array
from gristmill._cli.opening import OpenFiles, open_files
from gristmill._cli.terminal import (
    STYLE,
    amount,
    count,
    number_from,
    rate,
    share,
    table,
)
from gristmill._convert.errors import CommandError
from gristmill._convert.inputs import STEP_BYTES, reading

DESCRIPTION = """\
Measure how fast Gristmill reads the records of files: ArrayRecord, TFRecord, Parquet,
WebDataset's tar files, Bagz, a folder of shards of one of these, a folder of TFDS, or a
folder of class folders of images.  Records are read in order, shuffled, and shuffled
through a DataLoader.  JSON lines and compressed TFRecord files can only be read in
order.

For comparison, the same bytes are read with bare preads: in order, 1 MiB at a time;
shuffled, one pread per record or per chunk of records, if the positions of records are
known (ArrayRecord, TFRecord).  The last column is the number of records per second
divided by that of these preads.  The preads are a loop in Python.  In order, it is as
fast as the system.  For small shuffled records, it is slower than Gristmill's native
code.

Files are read once before measuring, so that they are in memory if they fit.  Checksums
of records are verified.  The index of a TFRecord file is stored next to it, as by a
DataLoader.
"""

EPILOG = """\
examples:
  gristmill bench train.array_record
  gristmill bench out/train --workers 0,4,8 --seconds 5
  gristmill bench 'data/*.parquet'
"""
NOTE = """\
pread shuffled is a Python loop with one os.preadv per record or chunk.  If these are
small, it measures the overhead of Python, and the last column can exceed 1.00.
"""
BLOCK_BYTES = 1 << 20
SEED = 0
# The most that one measurement reads. Only a part of larger files is read.
MOST_RECORDS, MOST_STEPS = 5_000_000, 10_000


class Rate(NamedTuple):
    """The amount of data that was read in some time."""

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
    purpose = "measure how fast files are read, compared to bare preads"
    parser = commands.add_parser(
        "bench", help=purpose, description=DESCRIPTION, epilog=EPILOG, **STYLE
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="a file, a folder, or a 'pattern*'")
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
        help="records per read, and per batch (default: %(default)s)",
    )
    add(
        "--seconds",
        type=_seconds,
        default=1.0,
        metavar="S",
        help="seconds to measure each row (default: %(default)s)",
    )
    add("--json", action="store_true", help="print a JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure files of one format, and print a table."""
    opened = open_files(arguments.files)
    with reading(opened.name):
        if not opened.records or not any(map(os.path.getsize, opened.files)):
            raise CommandError(
                f"{opened.name}: expected at least one record, found none."
            )
        for path in opened.files:  # Read into the page cache.
            with open(path, "rb", buffering=0) as file:
                while file.read(BLOCK_BYTES):
                    pass
        rates = list(_measure(opened, arguments))
    print(_as_json(opened, rates) if arguments.json else _as_table(opened, rates))
    return 0


def _measure(opened: OpenFiles, arguments: argparse.Namespace) -> Iterator[Rate]:
    batch_size, seconds = arguments.batch_size, arguments.seconds
    bare = _total("pread in order", _preads_in_order(opened), seconds)
    yield bare
    limit = bare.records_per_s
    yield _total("read in order", _in_order(opened), seconds, limit)
    if opened.source is None:
        return
    order = np.empty(min(opened.records, MOST_RECORDS), np.int64)
    _core.KeyPlan.range(opened.records).shuffle(SEED).fill(0, 1, order)
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    limit = 0.0
    if opened.places is not None:
        bare = _total("pread shuffled", _preads(opened, batches), seconds)
        yield bare
        limit = bare.records_per_s
    yield _total("read shuffled", _reads(opened, batches), seconds, limit)
    for number in arguments.workers:
        name = f"DataLoader, {count(number, 'worker')}"
        yield _total(name, _loads(opened, number, batch_size), seconds, limit)


# The number of records, their bytes, and the time that reading took, in s.
Step: TypeAlias = tuple[float, int, float]


def _total(
    name: str, steps: Iterator[Step], seconds: float, limit: float = 0.0
) -> Rate:
    """Take steps for `seconds` and add them up."""
    records, done, elapsed = 0.0, 0, 0.0
    while elapsed < seconds:
        some, size, took = next(steps)
        records += some
        done += size
        elapsed += took
    return Rate(name, records, done, elapsed, limit)


def _preads_in_order(opened: OpenFiles) -> Iterator[Step]:
    buffer = bytearray(BLOCK_BYTES)
    per_byte = opened.records / max(opened.bytes, 1)
    for path in itertools.cycle(opened.files):
        with open(path, "rb", buffering=0) as file:
            at = 0
            while True:
                start = time.perf_counter()
                done = os.preadv(file.fileno(), [buffer], at)
                took = time.perf_counter() - start
                if not done:
                    break
                yield done * per_byte, done, took
                at += done


def _preads(opened: OpenFiles, batches: list[Int64Array]) -> Iterator[Step]:
    assert opened.places is not None
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(open(path, "rb", buffering=0)).fileno()
            for path in opened.files
        ]
        for batch in itertools.cycle(batches):
            # Records of one chunk are read by one pread.
            parts, begins, ends = np.unique(opened.places(batch), axis=1)
            buffer = memoryview(bytearray(int((ends - begins).max())))
            sizes = (ends - begins).tolist()
            numbers = [files[part] for part in parts.tolist()]
            wanted = list(zip(numbers, begins.tolist(), sizes, strict=True))
            done = 0
            start = time.perf_counter()
            for number, offset, size in wanted:
                done += os.preadv(number, [buffer[:size]], offset)
            yield len(batch), done, time.perf_counter() - start


def _in_order(opened: OpenFiles) -> Iterator[Step]:
    """Read in steps of about 4 MiB, and start over at the end."""
    each = max(1, STEP_BYTES // max(1, opened.bytes // opened.records))
    if opened.source is not None:
        begins = range(0, opened.records, each)
        steps = [np.arange(i, min(i + each, opened.records)) for i in begins]
        yield from _reads(opened, steps)
    while True:
        records = opened.stream()
        start = time.perf_counter()
        while some := list(itertools.islice(records, each)):
            took = time.perf_counter() - start
            yield len(some), size_of(some), took
            start = time.perf_counter()


def _reads(opened: OpenFiles, batches: list[Int64Array]) -> Iterator[Step]:
    reader, source = opened.reader, opened.source
    together = getattr(source, "__getitems__", None)
    for batch in itertools.cycle(batches):
        start = time.perf_counter()
        if reader is not None:
            contents, _ = reader.read_many(batch, packed=True)
            yield len(batch), len(contents), time.perf_counter() - start
            continue
        keys = batch.tolist()
        found = [source[key] for key in keys] if together is None else together(keys)
        took = time.perf_counter() - start
        yield len(batch), size_of(found), took


def _loads(opened: OpenFiles, workers: int, batch_size: int) -> Iterator[Step]:
    """Take batches of a DataLoader after the first, when its workers have started."""
    source: Any = opened.source
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
        took = time.perf_counter() - start
        yield len(batch), size_of(batch), took
        start = time.perf_counter()


def _as_table(opened: OpenFiles, rates: list[Rate]) -> str:
    rows = [("", "records/s", "MB/s", "of pread")]
    for each in rates:
        part = share(each.records_per_s / each.limit) if each.limit else ""
        megabytes = each.record_bytes / each.seconds / 1e6
        rows.append((each.name, rate(each.records_per_s), rate(megabytes), part))
    files = "" if len(opened.files) == 1 else f"{count(len(opened.files), 'file')}, "
    size = amount(opened.bytes)
    title = f"{opened.name}: {files}{count(opened.records, 'record')}, {size}"
    notes = [opened.note] if opened.note else []
    if opened.places is not None:
        notes.append(NOTE.rstrip())
    return "\n\n".join([title, table(rows), *notes])


def _as_json(opened: OpenFiles, rates: list[Rate]) -> str:
    rows = [
        {
            "name": each.name,
            "records_per_s": each.records_per_s,
            "bytes_per_s": each.record_bytes / each.seconds,
            "of_pread": each.records_per_s / each.limit if each.limit else None,
        }
        for each in rates
    ]
    return json.dumps({"path": opened.name, "rates": rows})


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
