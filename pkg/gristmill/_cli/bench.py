"""``gristmill bench``: measures how fast the records of files are read."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gristmill import _core, loader, samplers, transforms
from gristmill._base.sizes import size_of
from gristmill._base.types import Int64Array
from gristmill._cli.opening import OpenFiles, open_files
from gristmill._cli.terminal import (
    STYLE,
    format_bytes,
    format_count,
    format_rate,
    format_ratio,
    format_table,
    integer_parser,
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
MAX_RECORDS = 5_000_000


class Measurement(NamedTuple):
    """The amount of data that one way to read has read in some time.

    Attributes:
        name: The name of the row in the table.
        records: The number of records; preads in order may end within one.
        record_bytes: Their size.
        seconds: The time that reading took.
        pread_per_s: Records per second of bare preads; 0 for their own rows.
    """

    name: str
    records: float
    record_bytes: int
    seconds: float
    pread_per_s: float = 0.0

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
        type=_parse_numbers,
        default=[0, 2],
        metavar="N,N,...",
        help="numbers of worker processes of the DataLoader (default: 0,2)",
    )
    add(
        "--batch-size",
        type=integer_parser(1),
        default=256,
        metavar="N",
        help="records per read, and per batch (default: %(default)s)",
    )
    add(
        "--seconds",
        type=_parse_seconds,
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
        measurements = list(_measure(opened, arguments))
    format_results = _as_json if arguments.json else _as_table
    print(format_results(opened, measurements))
    return 0


def _measure(opened: OpenFiles, arguments: argparse.Namespace) -> Iterator[Measurement]:
    batch_size, seconds = arguments.batch_size, arguments.seconds
    pread = _take_steps("pread in order", _pread_in_order(opened), seconds)
    yield pread
    pread_per_s = pread.records_per_s
    yield _take_steps("read in order", _read_in_order(opened), seconds, pread_per_s)
    if opened.source is None:
        return
    order = np.empty(min(opened.records, MAX_RECORDS), np.int64)
    _core.KeyPlan.range(opened.records).shuffle(SEED).fill(0, 1, order)
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    pread_per_s = 0.0
    if opened.byte_ranges is not None:
        pread = _take_steps("pread shuffled", _pread_batches(opened, batches), seconds)
        yield pread
        pread_per_s = pread.records_per_s
    yield _take_steps(
        "read shuffled", _read_batches(opened, batches), seconds, pread_per_s
    )
    for number in arguments.workers:
        name = f"DataLoader, {format_count(number, 'worker')}"
        yield _take_steps(
            name, _load_batches(opened, number, batch_size), seconds, pread_per_s
        )


class ReadStep(NamedTuple):
    """The number of records that were read, their bytes, and the time in s."""

    records: float
    nbytes: int
    seconds: float


def _take_steps(
    name: str, steps: Iterator[ReadStep], seconds: float, pread_per_s: float = 0.0
) -> Measurement:
    """Take steps for `seconds` and add them up."""
    records, nbytes, elapsed = 0.0, 0, 0.0
    while elapsed < seconds:
        step = next(steps)
        records += step.records
        nbytes += step.nbytes
        elapsed += step.seconds
    return Measurement(name, records, nbytes, elapsed, pread_per_s)


def _pread_in_order(opened: OpenFiles) -> Iterator[ReadStep]:
    """Read the files with bare preads, and count the records in proportion to bytes."""
    buffer = bytearray(BLOCK_BYTES)
    records_per_byte = opened.records / max(opened.bytes, 1)
    for path in itertools.cycle(opened.files):
        with open(path, "rb", buffering=0) as file:
            offset = 0
            while True:
                start = time.perf_counter()
                nbytes = os.preadv(file.fileno(), [buffer], offset)
                seconds = time.perf_counter() - start
                if not nbytes:
                    break
                yield ReadStep(nbytes * records_per_byte, nbytes, seconds)
                offset += nbytes


def _pread_batches(opened: OpenFiles, batches: list[Int64Array]) -> Iterator[ReadStep]:
    """Read batches of records with bare preads."""
    assert opened.byte_ranges is not None
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(open(path, "rb", buffering=0)).fileno()
            for path in opened.files
        ]
        for batch in itertools.cycle(batches):
            # Records of one chunk are read by one pread.
            numbers, begins, ends = np.unique(opened.byte_ranges(batch), axis=1)
            buffer = memoryview(bytearray(int((ends - begins).max())))
            sizes = (ends - begins).tolist()
            fds = [files[number] for number in numbers.tolist()]
            reads = list(zip(fds, begins.tolist(), sizes, strict=True))
            nbytes = 0
            start = time.perf_counter()
            for fd, offset, size in reads:
                nbytes += os.preadv(fd, [buffer[:size]], offset)
            yield ReadStep(len(batch), nbytes, time.perf_counter() - start)


def _read_in_order(opened: OpenFiles) -> Iterator[ReadStep]:
    """Read in steps of about 4 MiB, and start over at the end."""
    step_records = max(1, STEP_BYTES // max(1, opened.bytes // opened.records))
    if opened.source is not None:
        batches = [
            np.arange(begin, min(begin + step_records, opened.records))
            for begin in range(0, opened.records, step_records)
        ]
        yield from _read_batches(opened, batches)
    while True:
        records = opened.stream()
        start = time.perf_counter()
        while batch := list(itertools.islice(records, step_records)):
            seconds = time.perf_counter() - start
            yield ReadStep(len(batch), size_of(batch), seconds)
            start = time.perf_counter()


def _read_batches(opened: OpenFiles, batches: list[Int64Array]) -> Iterator[ReadStep]:
    """Read batches of records from the source."""
    reader, source = opened.reader, opened.source
    getitems = getattr(source, "__getitems__", None)
    for batch in itertools.cycle(batches):
        start = time.perf_counter()
        if reader is not None:
            contents, _ = reader.read_many(batch, packed=True)
            yield ReadStep(len(batch), len(contents), time.perf_counter() - start)
            continue
        keys = batch.tolist()
        elements = getitems(keys) if getitems else [source[key] for key in keys]
        seconds = time.perf_counter() - start
        yield ReadStep(len(batch), size_of(elements), seconds)


def _load_batches(
    opened: OpenFiles, workers: int, batch_size: int
) -> Iterator[ReadStep]:
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
        seconds = time.perf_counter() - start
        yield ReadStep(len(batch), size_of(batch), seconds)
        start = time.perf_counter()


def _as_table(opened: OpenFiles, measurements: list[Measurement]) -> str:
    rows = [("", "records/s", "MB/s", "of pread")]
    for each in measurements:
        part = (
            format_ratio(each.records_per_s / each.pread_per_s)
            if each.pread_per_s
            else ""
        )
        megabytes = each.record_bytes / each.seconds / 1e6
        rows.append(
            (each.name, format_rate(each.records_per_s), format_rate(megabytes), part)
        )
    files = (
        "" if len(opened.files) == 1 else f"{format_count(len(opened.files), 'file')}, "
    )
    size = format_bytes(opened.bytes)
    title = f"{opened.name}: {files}{format_count(opened.records, 'record')}, {size}"
    notes = [opened.note] if opened.note else []
    if opened.byte_ranges is not None:
        notes.append(NOTE.rstrip())
    return "\n\n".join([title, format_table(rows), *notes])


def _as_json(opened: OpenFiles, measurements: list[Measurement]) -> str:
    rows = [
        {
            "name": each.name,
            "records_per_s": each.records_per_s,
            "bytes_per_s": each.record_bytes / each.seconds,
            "of_pread": each.records_per_s / each.pread_per_s
            if each.pread_per_s
            else None,
        }
        for each in measurements
    ]
    return json.dumps({"path": opened.name, "rates": rows})


def _parse_numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0,2,4")
    return [int(part) for part in parts]


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 3600.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
