"""Examines the contents of record files."""

from __future__ import annotations

import array
import dataclasses
import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill import _core, errors, sources
from gristmill._base.progress_bar import Progress
from gristmill._cli.file_formats import AnyFormat
from gristmill._convert.errors import CommandError
from gristmill._convert.finding import Format
from gristmill._convert.inputs import (
    Input,
    ParquetInput,
    TFRecordInput,
    reading,
    steps_of,
)
from gristmill._convert.line_inputs import JsonLinesInput

FORMATS: tuple[Format, ...] = ("tfrecord", "array_record", "parquet", "jsonl")
# The number of records to sample for sizes if the file has to be read to get them.
SAMPLE_RECORDS = 20_000
# The number of sizes to put into the histogram at once, to bound the memory.
SIZES_AT_ONCE = 1 << 20


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Statistics of record sizes, in bytes, or of lengths of documents, in tokens.

    JSON output has fields of these names.

    Attributes:
        counted: The number of records that were measured.
        exact: Whether all records were measured.
        total: The total size of the measured records.
        least: The size of the smallest measured record.
        median: The median size; None for the totals of several files, which do not
            keep individual sizes.
        mean: The mean size.
        most: The size of the largest measured record.
        histogram: Pairs of a limit, which is a power of two, and the number of records
            that are smaller than it but not smaller than the previous limit.
    """

    counted: int
    exact: bool
    total: int
    least: int
    median: int | None
    mean: float
    most: int
    histogram: list[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Damage:
    """A range of unreadable records.  JSON output has fields of these names.

    Attributes:
        first: The number of the first record.
        records: The number of records.
        text: A description.
    """

    first: int
    records: int
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a file. JSON output lists the fields in this order.

    Attributes:
        path: The path of the file.
        format: The name of its format, for readers.
        file_bytes: The size of the file.
        records: The number of records.
        chunks: The number of chunks, or of row groups; None if its format has neither.
        group_size: The most records in a chunk or a row group; None without chunks.
        details: Texts about how the file was written, by their names.
        sizes: Statistics of record sizes; None if they are not known.
        verified: Whether all records were read.
        damaged: The unreadable records that were found.
        head: The first records.
    """

    path: str
    format: str
    file_bytes: int
    records: int
    chunks: int | None = None
    group_size: int | None = None
    details: dict[str, str] = dataclasses.field(default_factory=dict)
    sizes: Sizes | None = None
    verified: bool
    damaged: list[Damage] = dataclasses.field(default_factory=list)
    head: list[bytes] = dataclasses.field(default_factory=list)


def examine(
    path: str, file_format: AnyFormat, head: int, verify: bool, progress: Progress
) -> Contents:
    """Examine the contents of a file.

    Args:
        path: The file.
        file_format: Its format.
        head: The number of leading records to return.
        verify: Whether to read all records.
        progress: Receives the number of records read.

    Raises:
        CommandError: The file cannot be opened or is damaged as a whole.
    """
    if file_format == "files":
        raise CommandError(f"{path}: a folder of files has nothing to inspect.")
    with reading(path):
        if file_format == "parquet":
            found = _examine_parquet(ParquetInput(path, "json"), head, verify, progress)
        elif file_format in ("tar", "bag"):
            is_tar = file_format == "tar"
            source_class = sources.TarDataSource if is_tar else sources.BagDataSource
            found = _examine_reader(source_class(path).reader, head, verify, progress)
            found |= {"format": "tar" if is_tar else "Bagz"}
        elif file_format == "jsonl":
            found = _examine_stream(JsonLinesInput(path, "json"), head, verify)
            found["format"] = "JSON lines"
        elif file_format == "array_record":
            file = _core.RecordFile(path)
            options = file.options
            found = {
                **_examine_reader(file, head, verify, progress),
                "format": "ArrayRecord",
                "chunks": file.num_chunks,
                "group_size": file.group_size,
                "details": {
                    "codec": _codec_of_options(options),
                    "options": options or "not recorded",
                },
            }
        else:
            tf_record = TFRecordInput(path)
            compression = tf_record.compression
            if compression:
                found = _examine_stream(tf_record, head, verify)
            else:
                found = _examine_reader(tf_record.open(), head, verify, progress)
            codec = (compression or "none").lower()
            found |= {"format": "TFRecord", "details": {"codec": codec}}
        size = os.path.getsize(path)
        return Contents(path=path, file_bytes=size, verified=verify, **found)


def _examine_reader(
    file: _core.RecordReader, head: int, verify: bool, progress: Progress
) -> dict[str, Any]:
    """Return fields of the `Contents` of a file that supports random access."""
    return {
        "records": len(file),
        "sizes": _sample_sizes(file),
        "damaged": _find_damage(file, progress) if verify else [],
        "head": _read_head(file, head, verify),
    }


def _codec_of_options(options: str) -> str:
    """Return the codec that the options of an ArrayRecord writer name."""
    for option in options.split(","):
        if option.partition(":")[0] in ("uncompressed", "zstd", "brotli", "snappy"):
            return "none" if option == "uncompressed" else option
    return "not recorded"


def _sample_sizes(file: _core.RecordReader) -> Sizes | None:
    """Measure all records, or a sample; return None if they cannot be read."""
    total = len(file)
    if file.knows_sizes or total <= SAMPLE_RECORDS:
        numbers = np.arange(total)
    else:
        # Sample runs of neighbors: each chunk is then decoded once for many records.
        runs, length = 20, SAMPLE_RECORDS // 20
        starts = np.linspace(0, total - length, runs).astype(np.int64)
        numbers = (starts[:, None] + np.arange(length)).reshape(-1)
    try:
        return sizes_of(file.sizes(numbers), total)
    except errors.CorruptRecord:
        return None  # The rest of the summary is still shown.


def sizes_of(sizes: npt.NDArray[np.integer[Any]], total: int) -> Sizes | None:
    """Return statistics of `sizes`, a sample of `total` records; None if empty."""
    if not len(sizes):
        return None
    counts = np.zeros(65, np.int64)
    for begin in range(0, len(sizes), SIZES_AT_ONCE):
        _, exponents = np.frexp(sizes[begin : begin + SIZES_AT_ONCE].astype(np.float64))
        counts += np.bincount(exponents, minlength=len(counts))
    found = np.flatnonzero(counts).tolist()
    all_sizes = int(sizes.sum(dtype=np.int64))
    return Sizes(
        counted=len(sizes),
        exact=len(sizes) == total,
        total=all_sizes,
        least=int(sizes.min()),
        median=int(np.median(sizes)),
        mean=all_sizes / len(sizes),
        most=int(sizes.max()),
        histogram=[(2**e, int(counts[e])) for e in range(found[0], found[-1] + 1)],
    )


def _read_head(file: _core.RecordReader, head: int, verify: bool) -> list[bytes]:
    """Return the first records, without damaged ones if `verify` lists those."""
    records = []
    for number in range(min(head, len(file))):
        try:
            records.append(file.read(number))
        except errors.CorruptRecord:
            if not verify:
                raise
    return records


def _find_damage(file: _core.RecordReader, progress: Progress) -> list[Damage]:
    """Read every record, and return the unreadable ranges."""
    found: list[Damage] = []
    progress.begin("records verified", len(file))
    for step in steps_of(file):
        # A damaged range can extend into the next step.
        damage_end = found[-1].first + found[-1].records if found else 0
        try:
            file.read_many(step[step >= damage_end], packed=True)
        except errors.CorruptRecord:
            first = max(damage_end, int(step[0]))
            found += _find_damage_between(file, first, int(step[-1]) + 1)
        progress.advance(len(step))
    return found


def _find_damage_between(
    file: _core.RecordReader, first: int, end: int
) -> Iterator[Damage]:
    """Read the records [first, end) one by one, and yield the unreadable ranges."""
    number = first
    while number < end:
        step = 1
        try:
            file.read(number)
        except errors.CorruptRecord as error:
            if isinstance(file, _core.RecordFile):
                # The hash covers the whole chunk, so the rest of it is lost.
                next_chunk = (number // file.group_size + 1) * file.group_size
                step = min(len(file), next_chunk) - number
            yield Damage(number, step, str(error))
        number += step


def _examine_stream(source: Input, head: int, verify: bool) -> dict[str, Any]:
    """Return fields of the `Contents` of a file that can only be read sequentially."""
    sizes = array.array("q")
    head_records: list[bytes] = []
    damaged = []
    try:
        for record in source.records(0):
            if len(head_records) < head:
                head_records.append(record)
            sizes.append(len(record))
    except CommandError as problem:
        if not verify:
            raise
        damaged.append(Damage(len(sizes), 1, f"{problem} Nothing after it was read."))
    return {
        "records": len(sizes),
        "sizes": sizes_of(np.array(sizes, dtype=np.int64), len(sizes)),
        "damaged": damaged,
        "head": head_records,
    }


def _examine_parquet(
    rows: ParquetInput, head: int, verify: bool, progress: Progress
) -> dict[str, Any]:
    with rows.open() as file:
        meta = file.metadata
        groups = [meta.row_group(group) for group in range(meta.num_row_groups)]
        codecs = {
            group.column(column).compression
            for group in groups
            for column in range(group.num_columns)
        }
        schema = file.schema_arrow
    columns = ", ".join(f"{field.name}: {field.type}" for field in schema)
    records = rows.records(0)
    damaged = []
    head_records = []
    try:
        head_records = list(itertools.islice(records, head))
        if verify:
            progress.begin("rows verified", meta.num_rows)
            for _ in records:
                progress.advance(1)
    except CommandError as problem:
        if not verify:
            raise
        damaged.append(Damage(0, meta.num_rows, str(problem)))
    return {
        "format": "Parquet",
        "records": meta.num_rows,
        "chunks": len(groups),
        "group_size": max((group.num_rows for group in groups), default=None),
        "details": {"codec": ", ".join(sorted(codecs)).lower(), "columns": columns},
        "damaged": damaged,
        "head": head_records,
    }
