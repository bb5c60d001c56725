"""Implementation of sources.read_tf_records: TFRecord files from start to end."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any, Literal, NamedTuple

from gristmill import _core
from gristmill._base.closeable import Closeable
from gristmill.errors import CorruptRecord
from gristmill.sources._record_files import find_file
from gristmill.sources._remote import RemoteStream
from gristmill.sources._remote_options import RemoteOptions

__all__ = ["TFRecordPosition", "TFRecordStream", "read_tf_records"]

Compression = Literal["auto", "GZIP", "ZLIB", ""] | None

HEADER_BYTES = 12  # The length of a record and its checksum.
INPUT_BYTES = 64 << 10  # Compressed bytes read at once.
REMOTE_BYTES = 8 << 20  # Bytes of a remote file read at once.
# zlib's window bits for each format: 15 for the largest window, plus 16 for gzip.
WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}


class TFRecordPosition(NamedTuple):
    """A position between two records of a TFRecord file.

    Attributes:
        record: The number of the next record.
        offset: The position of the next record in bytes, in the file or, if it is
            compressed, in the decompressed content.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "empty.tfrecord")
        >>> _ = path.write_bytes(b"")
        >>> with gristmill.sources.read_tf_records(path) as records:
        ...     records.position  # Save it to continue here.
        TFRecordPosition(record=0, offset=0)
    """

    record: int
    offset: int


START = TFRecordPosition(0, 0)


def read_tf_records(
    path: str | os.PathLike[str],
    compression: Compression = "auto",
    *,
    verify: str = "all",
    position: TFRecordPosition = START,
    storage_options: Mapping[str, Any] | None = None,
    remote_options: RemoteOptions | None = None,
) -> TFRecordStream:
    """Read a TFRecord file from its start to its end.

    Use it for compressed files, which have no random access, or if every record is
    needed once: it makes no index.  Memory use is that of the longest record.

    Args:
        path: The file, or a URL that fsspec supports, such as ``gs://bucket/path``.
        compression: "GZIP", "ZLIB", or None or "" for none.  "auto" detects it.
        verify: Which checksums are compared: "all", or only those of lengths for
            "headers" and "none", because reading cannot continue after a wrong length.
        position: The start: the `position` of an earlier stream over the file.
            A compressed file is decompressed up to this position.
        storage_options: Arguments of the file system of a URL, such as credentials.
        remote_options: How a remote file is read.  None for the defaults.

    Returns:
        An iterator over ``bytes``, which is also a context manager.  Its ``position``
        is that of the next record.

    Raises:
        ValueError: `compression` or `verify` is unknown.
        OSError: The file cannot be opened.
        CorruptRecord: Raised by the iterator: the file is not a TFRecord file, is
            truncated, or a record is damaged.  If only the data of a record is damaged,
            the iterator can continue with the next record.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "empty.tfrecord")
        >>> _ = file.write_bytes(b"")
        >>> with read_tf_records(file) as records:
        ...     list(records)
        []
    """
    if compression not in ("auto", "GZIP", "ZLIB", "", None):
        raise ValueError(
            f"compression must be 'auto', 'GZIP', 'ZLIB' or None, got {compression!r}."
        )
    file = open_tf_records(path, storage_options, remote_options)
    return TFRecordStream(file, os.fspath(path), compression, verify, position)


def open_tf_records(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    remote_options: RemoteOptions | None = None,
) -> IO[bytes]:
    """Open a TFRecord file as bytes, like `read_tf_records`."""
    path_or_remote_file = find_file(
        os.fspath(path), "pread", storage_options, remote_options
    )
    if isinstance(path_or_remote_file, str):
        return io.FileIO(
            path_or_remote_file
        )  # Not buffered: the parser reads large pieces.
    return io.BufferedReader(RemoteStream(path_or_remote_file), REMOTE_BYTES)


def records_of(
    file: IO[bytes],
    path: str,
    compression: Compression,
    verify: str,
    position: TFRecordPosition,
) -> tuple[_core.TfRecordStream, str]:
    """Return the records of an open file, and its compression, or "" for none.

    REQUIRES: the file is at its start.
    """
    record, offset = position
    if compression == "auto":
        compressed = _core.tf_record_compression(file.read(HEADER_BYTES))
        file.seek(0)
    else:
        compressed = compression or ""
    source: Any = file
    if compressed:
        source = InflatingReader(file, path, compressed)
        source.skip(offset)
    else:
        _seek(file, path, offset)
    return _core.TfRecordStream(source, path, verify, record, offset), compressed


def _seek(file: IO[bytes], path: str, offset: int) -> None:
    if offset > (size := file.seek(0, io.SEEK_END)):
        raise CorruptRecord(
            f"{path}: position must have an offset of at most {size}, the size of the"
            f" file in bytes, got {offset}. It is a position in another file, or this"
            " file was not copied completely."
        )
    file.seek(offset)


class TFRecordStream(Closeable, Iterator[bytes]):
    """An iterator over the records of a TFRecord file, made by `read_tf_records`.

    It closes its file when it is closed or garbage-collected.

    Args:
        file: The open file, at its start.
        path: The path of the file, for error texts.
        compression: The compression, as in `read_tf_records`.
        verify: The checksums to compare, as in `read_tf_records`.
        position: The record to start from.

    Raises:
        CorruptRecord: The file is shorter than `position`.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "empty.tfrecord")
        >>> _ = path.write_bytes(b"")
        >>> with gristmill.sources.read_tf_records(path) as records:
        ...     isinstance(records, TFRecordStream), records.compression, list(records)
        (True, None, [])
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.

    def __init__(
        self,
        file: IO[bytes],
        path: str,
        compression: Compression,
        verify: str,
        position: TFRecordPosition,
    ) -> None:
        self._file = file
        self._path = path
        self._records, compressed = records_of(
            file, path, compression, verify, position
        )
        self._compression = compressed or None

    @property
    def compression(self) -> str | None:
        """The compression of the file: "GZIP", "ZLIB" or None."""
        return self._compression

    @property
    def position(self) -> TFRecordPosition:
        """The position of the next record, for `read_tf_records`."""
        return TFRecordPosition(self._records.record, self._records.offset)

    def __next__(self) -> bytes:
        if self._file.closed:
            raise ValueError(
                f"{self._path}: cannot read, because the stream is closed."
            )
        return self._records.__next__()

    def __del__(self) -> None:
        self._file.close()

    def close(self) -> None:
        """Close the file; nothing can be read afterwards."""
        self._file.close()

    def __repr__(self) -> str:
        return f"<TFRecordStream {self._path!r} at {self.position}>"


class InflatingReader:
    """The decompressed content of a file, read by `readinto` in bounded memory."""

    def __init__(self, file: IO[bytes], path: str, compression: str) -> None:
        self._file = file
        self._path = path
        self._compression = compression
        self._bits = WINDOW_BITS[compression]
        self._inflater = zlib.decompressobj(self._bits)
        self._input = b""  # Compressed bytes that the inflater has not taken.
        self._offset = 0  # Number of decompressed bytes returned.

    def readinto(self, buffer: memoryview) -> int:
        """Fill the front of `buffer`, and return the number of bytes; 0 at the end."""
        try:
            data = self._read(len(buffer))
        except zlib.error as error:
            raise self._corrupt(f"invalid data ({error})") from error
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def skip(self, count: int) -> None:
        """Read and discard `count` bytes."""
        discarded = memoryview(bytearray(min(count, io.DEFAULT_BUFFER_SIZE)))
        while count:
            done = self.readinto(discarded[: min(count, len(discarded))])
            if not done:
                raise self._corrupt("the end of the data")
            count -= done

    def _read(self, max_size: int) -> bytes:
        """Return up to `max_size` decompressed bytes; b"" only at the end."""
        while True:
            if self._inflater.eof:
                # A file may consist of several compressed streams.
                self._input = self._inflater.unused_data or self._file.read(INPUT_BYTES)
                if not self._input:
                    return b""
                self._inflater = zlib.decompressobj(self._bits)
            data = self._inflater.decompress(self._input, max_size)
            self._input = self._inflater.unconsumed_tail
            if data:
                return data
            if not self._input and not self._inflater.eof:
                self._input = self._file.read(INPUT_BYTES)
                if not self._input:
                    raise self._corrupt("a truncated file")

    def _corrupt(self, found: str) -> CorruptRecord:
        return CorruptRecord(
            f"{self._path}: expected {self._compression} data after {self._offset}"
            f" decompressed bytes, found {found}. The file is damaged, or not copied"
            " completely."
        )


# Pickles and tracebacks show the public module.
TFRecordPosition.__module__ = __name__.rpartition(".")[0]
read_tf_records.__module__ = __name__.rpartition(".")[0]
