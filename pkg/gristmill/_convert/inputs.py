"""Counts and reads the records of each kind of input.

An input has a path, and can be pickled for worker processes.
"""

from __future__ import annotations

import abc
import bisect
import contextlib
import dataclasses
import functools
import gzip
import hashlib
import itertools
import json
import lzma
import os
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from gristmill import _core, errors
from gristmill._base.types import Int64Array
from gristmill._convert import rows
from gristmill._convert.compressed_text import open_text
from gristmill._convert.errors import ConversionError, from_os_error, import_optional
from gristmill._convert.examples import bytes_features, example, int64_features
from gristmill._convert.paths import files_below, stat_regular
from gristmill.sources._sidecars import sidecar_paths
from gristmill.sources._tf_record_stream import read_tf_records

# The approximate number of bytes of an indexed file to read at once.
STEP_BYTES = 4 << 20
# The number of rows of a Parquet file to decode and encode at once.
STEP_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class Input(abc.ABC):
    """A sequence of records in one file, or below one folder."""

    path: str

    @abc.abstractmethod
    def count(self) -> int:
        """Return the number of records."""

    @abc.abstractmethod
    def records(self, first: int) -> Iterator[bytes]:
        """Yield the records from number `first` on."""

    def can_seek(self) -> bool:
        """Return whether `records` finds the first one without reading others."""
        return True

    def identity(self) -> dict[str, Any]:
        """Return JSON values that change when the content changes."""
        status = stat_regular(self.path)
        return {
            "path": os.path.abspath(self.path),
            "bytes": status.st_size,
            "mtime_ns": status.st_mtime_ns,
        }


class IndexedInput(Input):
    """A file whose records can be read in any order."""

    @abc.abstractmethod
    def open(self) -> _core.RecordReader:
        """Open the file."""

    def count(self) -> int:
        with reading(self.path):
            return len(self.open())

    def records(self, first: int) -> Iterator[bytes]:
        with reading(self.path):
            file = self.open()
            for step in steps_of(file, first):
                yield from file.read_many(step)


@dataclasses.dataclass(frozen=True)
class ArrayRecordInput(IndexedInput):
    """An ArrayRecord file, of any codec and group size."""

    def open(self) -> _core.RecordFile:
        return _core.RecordFile(self.path)


def steps_of(file: _core.RecordReader, first: int = 0) -> Iterator[Int64Array]:
    """Yield the numbers of the records from `first` on, about 4 MiB at a time."""
    count = len(file)
    average = os.path.getsize(file.path) // max(1, count)
    step = max(1, STEP_BYTES // max(1, average))
    for begin in range(first, count, step):
        yield np.arange(begin, min(begin + step, count))


@dataclasses.dataclass(frozen=True)
class TFRecordInput(IndexedInput):
    """A TFRecord file, uncompressed or compressed by gzip or zlib."""

    # A folder in which the processes that read the file share its index. If None, the
    # index is only read from where data sources keep it, and not written.
    index_dir: str | None = dataclasses.field(default=None, compare=False)

    @property
    def compression(self) -> str | None:
        """The compression: "GZIP", "ZLIB" or None."""
        with reading(self.path), read_tf_records(self.path) as stream:
            return stream.compression

    def can_seek(self) -> bool:
        return not self.compression

    def open(self) -> _core.TfRecordFile:
        """Open an uncompressed file. An existing index is loaded."""
        status = os.stat(self.path)
        version = (status.st_size, status.st_mtime_ns)
        return _open_tf_record(self.path, self.index_dir, version)

    def count(self) -> int:
        if self.compression:
            return sum(1 for _ in self.records(0))
        return super().count()

    def records(self, first: int) -> Iterator[bytes]:
        if not self.compression:
            yield from super().records(first)
            return
        with reading(self.path), read_tf_records(self.path, verify="all") as stream:
            yield from itertools.islice(stream, first, None)

    def begins_with_record(self) -> bool:
        """Return whether the file begins with a whole record."""
        with reading(self.path), read_tf_records(self.path) as stream:
            try:
                return next(stream, None) is not None
            except errors.CorruptRecord:
                return False


@functools.lru_cache(maxsize=1)  # A process reads several shards of one file.
def _open_tf_record(
    path: str, index_dir: str | None, version: tuple[int, int]
) -> _core.TfRecordFile:
    del version  # Only part of the cache key, so that a changed file is opened again.
    # Do not write new indices next to the user's files.
    index_paths = [*filter(os.path.exists, sidecar_paths(path, "tf_record"))]
    if index_dir is not None:
        index_paths += sidecar_paths(path, "tf_record", index_dir)
    return _core.TfRecordFile(path, "all", "pread", index_paths, _core.ScanProgress())


@dataclasses.dataclass(frozen=True)
class ParquetInput(Input):
    """A Parquet file; each row becomes a record."""

    encoding: rows.Encoding

    def count(self) -> int:
        with self.open() as file:
            return int(file.metadata.num_rows)

    def records(self, first: int) -> Iterator[bytes]:
        with self.open() as file:
            groups = range(file.metadata.num_row_groups)
            counts = [file.metadata.row_group(group).num_rows for group in groups]
            first_group = bisect.bisect_right(list(itertools.accumulate(counts)), first)
            rows_to_skip = first - sum(counts[:first_group])
            for batch in file.iter_batches(
                STEP_ROWS, row_groups=groups[first_group:], use_threads=False
            ):
                yield from self._encode(batch.slice(min(rows_to_skip, batch.num_rows)))
                rows_to_skip = max(rows_to_skip - batch.num_rows, 0)

    @contextlib.contextmanager
    def open(self) -> Iterator[Any]:
        """Open the file as a pyarrow ParquetFile."""
        pyarrow = import_optional("pyarrow")
        parquet = import_optional("pyarrow.parquet")
        try:
            with reading(self.path), parquet.ParquetFile(self.path) as file:
                yield file
        except pyarrow.ArrowException as error:
            raise ConversionError(f"{self.path}: {error}") from error

    def _encode(self, batch: Any) -> Iterator[bytes]:
        if self.encoding == "json":
            yield from map(rows.json_of_row, batch.to_pylist())
            return
        try:
            yield from rows.examples_of_table(batch)
        except ConversionError as problem:
            raise ConversionError(f"{self.path}: {problem}") from None


@dataclasses.dataclass(frozen=True)
class JsonLinesInput(Input):
    """A file with a JSON value in each line, compressed or not."""

    encoding: rows.Encoding

    def can_seek(self) -> bool:
        return False

    def count(self) -> int:
        return sum(1 for _ in self._lines())

    def records(self, first: int) -> Iterator[bytes]:
        for position, (line_number, line) in enumerate(self._lines()):
            if position >= first:
                yield self._record(line_number, line)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not empty, each after its number, from 1."""
        with reading(self.path), open_text(self.path) as file:
            for line_number, line in enumerate(file, start=1):
                if not line.isspace():
                    yield line_number, line

    def _record(self, line_number: int, line: bytes) -> bytes:
        try:
            value = json.loads(line)
            if self.encoding == "json":
                return line.strip()
            return rows.example_of_object(value)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ConversionError(
                f"{self.path}: line {line_number} is not JSON: {error}. Fix or remove"
                " it."
            ) from None
        except ConversionError as problem:
            raise ConversionError(
                f"{self.path}: line {line_number}: {problem}"
            ) from None


@dataclasses.dataclass(frozen=True)
class FolderInput(Input):
    """The files below a folder, sorted by their paths; each is a record.

    With names, a record is a tf.train.Example of ``name`` (the path in the folder),
    ``label`` (the number of its first folder among all such, sorted; -1 for files at
    the top) and ``bytes`` (the content).
    """

    with_names: bool
    # Not compared: `identity` already depends on the files that are found.
    follow_links: bool = dataclasses.field(default=False, compare=False)

    def identity(self) -> dict[str, Any]:
        files_below.cache_clear()  # The folder may have changed.
        files = self._files()
        digest = hashlib.sha256()
        for name in files:
            status = stat_regular(os.path.join(self.path, name))
            line = f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n"
            digest.update(os.fsencode(line))
        return {
            "path": os.path.abspath(self.path),
            "files": len(files),
            "sha256": digest.hexdigest(),
        }

    def count(self) -> int:
        return len(self._files())

    def records(self, first: int) -> Iterator[bytes]:
        files = self._files()
        labels = sorted({*map(top_folder, files)} - {""})
        number_of = {label: number for number, label in enumerate(labels)}
        for name in files[first:]:
            path = os.path.join(self.path, name)
            with reading(path), open(path, "rb") as file:
                content = file.read()
            if self.with_names:
                label = number_of.get(top_folder(name), -1)
                yield example(
                    [
                        *bytes_features("name", [os.fsencode(name)]),
                        *int64_features("label", [label]),
                        *bytes_features("bytes", [content]),
                    ]
                )
            else:
                yield content

    def _files(self) -> tuple[str, ...]:
        return files_below(self.path, self.follow_links)


def top_folder(name: str) -> str:
    """Return the first folder of a path below the input, or "" for a top-level file."""
    return name[: max(name.find("/"), 0)]


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Convert errors while reading a file to ConversionErrors with its path."""
    try:
        yield
    except errors.CorruptRecord as error:
        raise ConversionError(f"{error}") from error
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise ConversionError(f"{path}: damaged compressed data: {error}.") from error
    except OSError as error:
        raise from_os_error(error, path) from error
