"""A dataset of the records of a TFRecord file."""

from __future__ import annotations

import functools
import os
from typing import Any

from gristmill._base.argument_checks import check_instance
from gristmill._core import TfRecordStream
from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import CheckedIterator, DatasetIterator
from gristmill.sources._tf_record_stream import (
    START,
    TFRecordPosition,
    open_tf_records,
    records_of,
)


class TFRecordIterDataset(IterDataset[bytes]):
    """The records of a TFRecord file, as bytes.

    To read several files, pass several of these datasets to an `InterleaveIterDataset`.

    Args:
        path: The file, or a URL for fsspec. Detects gzip and zlib.

    Like Grain, this verifies checksums of lengths, but not those of data.
    `sources.read_tf_records` verifies both.

    Raises:
        OSError: In ``iter(ds)``: the file cannot be opened.
        CorruptRecord: While iterating: the file is truncated or not a TFRecord file.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "empty.tfrecord")
        >>> _ = file.write_bytes(b"")
        >>> list(gristmill.experimental.TFRecordIterDataset(str(file)))
        []
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        path_types = (str, bytes, os.PathLike)
        check_instance(
            "path",
            path,
            path_types,
            "the path of one file; interleave several datasets",
        )
        self._path = path

    def __iter__(self) -> DatasetIterator[bytes]:
        return TFRecordDatasetIterator(self._path)


class TFRecordReader:
    """Reads the records of a TFRecord file in order.

    A subclass may open the file itself: `_reader` is a seekable binary file.

    Args:
        path: The file.
    """

    # Names the file in error messages if a subclass does not call this `__init__`.
    _path = "a TFRecord file"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._reader = open_tf_records(path)

    @functools.cached_property
    def _records(self) -> TfRecordStream:
        return self._open_at(START)

    def _open_at(self, position: TFRecordPosition) -> TfRecordStream:
        # "none" still verifies the checksums of lengths.
        self._reader.seek(0)
        return records_of(self._reader, self._path, "auto", "none", position)[0]

    def __next__(self) -> bytes:
        return self._records.__next__()

    def seek(self, offset: int) -> None:
        """Go to the record at an offset returned by `tell`."""
        # The record number is unknown. It is only used in error messages.
        self._records = self._open_at(TFRecordPosition(record=0, offset=offset))

    def tell(self) -> int:
        """Return the offset of the next record, in uncompressed bytes."""
        return self._records.offset

    def close(self) -> None:
        self._reader.close()

    def __del__(self) -> None:
        if hasattr(self, "_reader"):
            self.close()


class TFRecordDatasetIterator(CheckedIterator[bytes]):
    """Iterates over the records of a TFRecord file."""

    _STATE = states.fields(reader_offset=states.count)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._reader = TFRecordReader(path)
        super().__init__()

    def __next__(self) -> bytes:
        self._assert_not_closed()
        return next(self._reader)

    def get_state(self) -> Any:
        return {"reader_offset": self._reader.tell()}

    def _go_to(self, state: Any) -> None:
        self._reader.seek(state["reader_offset"])

    def _release(self) -> None:
        self._reader.close()
