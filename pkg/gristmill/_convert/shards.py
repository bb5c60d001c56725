"""Writes ArrayRecord files, and reads each back to verify it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill import _core, errors
from gristmill._base.types import Int64Array
from gristmill._convert.errors import ConversionError, from_os_error, import_optional
from gristmill._convert.inputs import steps_of

CODECS = re.compile(r"none|snappy|zstd(:-?\d+)?|brotli(:\d+)?")
LEVELS = {"zstd": (-131072, 22), "brotli": (0, 11)}
# The number of record bytes between two progress reports.
REPORT_BYTES = 1 << 20


class Digest:
    """A checksum of a sequence of records.

    It is the SHA-256 of two SHA-256 digests: of all concatenated records, and of their
    sizes as 8-byte little-endian integers.
    """

    def __init__(self) -> None:
        self.records = 0
        self.record_bytes = 0
        self._contents = hashlib.sha256()
        self._sizes = hashlib.sha256()

    def add(self, record: bytes) -> None:
        self.records += 1
        self.record_bytes += len(record)
        self._contents.update(record)
        self._sizes.update(struct.pack("<Q", len(record)))

    def add_many(self, contents: npt.NDArray[np.uint8], sizes: Int64Array) -> None:
        """Add the next records, which are concatenated in `contents`."""
        self.records += len(sizes)
        self.record_bytes += len(contents)
        self._contents.update(contents.data)
        self._sizes.update(sizes.astype("<i8").data)

    def hexdigest(self) -> str:
        digests = self._contents.digest() + self._sizes.digest()
        return hashlib.sha256(digests).hexdigest()


@dataclasses.dataclass(frozen=True)
class WrittenFile:
    """The verified contents of a finished file; the journal stores these fields.

    Attributes:
        records: The number of records.
        record_bytes: The total size of the records.
        file_bytes: The size of the file.
        sha256: The `Digest` of the records, in hex.
    """

    records: int
    record_bytes: int
    file_bytes: int
    sha256: str


class Advance(NamedTuple):
    """Progress of a writer: records and tokens since its last report."""

    records: int
    tokens: int = 0


def writer_options(group_size: int, compression: str) -> str:
    """Return the options of the array-record package's writer.

    Args:
        group_size: Records compressed together, at least 1.
        compression: "none", "zstd", "brotli" or "snappy". "zstd" and "brotli" may have
            a level, as in "zstd:9".

    Raises:
        ValueError: An argument is invalid.
    """
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, got {group_size}.")
    if not CODECS.fullmatch(compression):
        raise ValueError(
            "compression must be none, zstd[:LEVEL], brotli[:LEVEL] or snappy, got"
            f" {compression!r}."
        )
    codec, _, level = compression.partition(":")
    if level:
        lowest, highest = LEVELS[codec]
        if not lowest <= int(level) <= highest:
            raise ValueError(
                f"compression must have a level of {codec} from {lowest} to {highest},"
                f" got {compression!r}."
            )
    return (
        f"group_size:{group_size},{'uncompressed' if codec == 'none' else compression}"
    )


class RecordWriter:
    """Writes a file with the array-record package, and reads it back.

    Attributes:
        written: The digest of the records written so far.

    Raises:
        ConversionError: The package is not installed, or the options are wrong.
    """

    def __init__(self, path: str, options: str) -> None:
        self.path = path
        self.written = Digest()
        module = import_optional("array_record.python.array_record_module")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # Processes with the old file open keep it.
        try:
            self._writer = module.ArrayRecordWriter(path, options)
        except ValueError as error:
            raise ConversionError(
                f"options must be options of the array-record package, got {options!r}:"
                f" {error}."
            ) from error

    def write(self, record: bytes) -> None:
        self._writer.write(record)
        self.written.add(record)

    def close(self) -> None:
        """Finish the file, and verify its contents.

        Raises:
            ConversionError: The disk is full, or the file does not have the written
                records.
        """
        try:
            self._writer.close()
        except RuntimeError as error:
            raise ConversionError(f"{self.path}: {error}.") from error
        check_file(self.path, self.written)

    def discard(self) -> None:
        """Remove the file. This may be called after a failed `close`."""
        with contextlib.suppress(RuntimeError):
            self._writer.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


@dataclasses.dataclass(frozen=True)
class ShardWriter:
    """Writes the shards of a conversion.

    Attributes:
        options: Options of the array-record package's writer.
    """

    options: str

    def write(
        self, records: Iterable[bytes], path: str
    ) -> Iterator[Advance | WrittenFile]:
        """Write records to a file, read it back, and flush it to disk.

        Yields:
            The number of records written since the last report, and at the end a
            `WrittenFile`.

        Raises:
            ConversionError: The disk is full, or the file does not have the written
                records.
        """
        writer = RecordWriter(path, self.options)
        digest = writer.written
        reported_records = reported_bytes = 0
        try:
            for record in records:
                writer.write(record)
                if digest.record_bytes - reported_bytes > REPORT_BYTES:
                    yield Advance(digest.records - reported_records)
                    reported_records = digest.records
                    reported_bytes = digest.record_bytes
            yield Advance(digest.records - reported_records)
            writer.close()
            size = flush_to_disk(path)
        except BaseException:
            writer.discard()
            raise
        yield WrittenFile(digest.records, digest.record_bytes, size, digest.hexdigest())


def check_file(path: str, expected: Digest) -> None:
    """Read a file and compare the number and checksum of its records."""
    found = Digest()
    try:
        file = _core.RecordFile(path)
        for step in steps_of(file):
            contents, offsets = file.read_many(step, packed=True)
            found.add_many(contents, np.diff(offsets))
    except errors.CorruptRecord as error:
        raise ConversionError(
            f"{error}. It was written just now: check the disk."
        ) from error
    except OSError as error:
        raise from_os_error(error, path) from error
    if (found.records, found.hexdigest()) != (expected.records, expected.hexdigest()):
        raise ConversionError(
            f"{path}: read back {found.records} records with checksum"
            f" {found.hexdigest()}, but wrote {expected.records} with"
            f" {expected.hexdigest()}. Check the disk and the memory."
        )


def flush_to_disk(path: str) -> int:
    """Flush a file to disk, and return its size in bytes."""
    try:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        raise from_os_error(error, path) from error
