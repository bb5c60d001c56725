"""Reads and writes record files on the file systems of Apache Beam."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from gristmill._convert.shards import RecordWriter
from gristmill.sources._tf_record_stream import START, TFRecordStream

COPY_BYTES = 1 << 20


class Writer(RecordWriter):
    """Writes a file on a file system of Beam, and reads it back.

    A file that is not local is written to a temporary folder, verified, and copied.
    """

    def __init__(self, path: str, options: str) -> None:
        self._final = path
        self._folder = ""
        if FileSystems.get_scheme(path) is not None:
            self._folder = tempfile.mkdtemp(prefix="gristmill-")
            path = os.path.join(self._folder, "records")
        super().__init__(path, options)

    def close(self) -> None:
        try:
            super().close()
            if self._folder:
                self._copy()
        finally:
            self._remove_folder()

    def _copy(self) -> None:
        """Copy the finished file from the temporary folder to its final path."""
        destination = FileSystems.create(
            self._final, compression_type=CompressionTypes.UNCOMPRESSED
        )
        with open(self.path, "rb") as file, destination:
            shutil.copyfileobj(file, destination, COPY_BYTES)

    def discard(self) -> None:
        super().discard()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def convert_file(path: str, final: str, options: str) -> str:
    """Convert one TFRecord file to ArrayRecord, and return the path of the output.

    Args:
        path: The TFRecord file.
        final: The path of the ArrayRecord file.
        options: Options of the array-record package's writer.
    """
    folder, name = FileSystems.split(final)
    # The folder may already exist. If creating it failed, writing raises the error.
    with contextlib.suppress(OSError):
        FileSystems.mkdirs(folder)
    # Two workers may convert the same file at once, and may be killed at any time.
    part = FileSystems.join(folder, f".{name}.{uuid.uuid4().hex}.part")
    writer = Writer(part, options)
    try:
        for record in records_of(path):
            writer.write(record)
        writer.close()
        FileSystems.rename([part], [final])
    except BaseException:
        writer.discard()
        if FileSystems.exists(part):
            FileSystems.delete([part])
        raise
    return final


def records_of(path: str) -> Iterator[bytes]:
    """Yield the records of a TFRecord file on any of Beam's file systems."""
    uncompressed = CompressionTypes.UNCOMPRESSED  # Do not let Beam guess by name.
    with FileSystems.open(path, compression_type=uncompressed) as file:
        yield from TFRecordStream(file, path, "auto", "all", START)
