"""A dataset of the records of a TFRecord file."""

from __future__ import annotations

import os
from typing import Any

from gristmill._checks import check_instance
from gristmill._dataset import state_checks
from gristmill._dataset.base import IterDataset
from gristmill._dataset.iterator import DatasetIterator
from gristmill._tf_record_stream import TFRecordPosition, read_tf_records


class TFRecordIterDataset(IterDataset[bytes]):
    """The records of a TFRecord file, as bytes.

    Several files are read by an `InterleaveIterDataset` of several of these.

    Args:
        path: The file, or a URL that fsspec knows; gzip and zlib are recognized.

    Checksums of lengths are compared, those of data are not, as in Grain;
    `sources.read_tf_records` compares all.

    Raises:
        OSError: The file cannot be opened; by ``iter(ds)``.
        CorruptRecord: The file is no TFRecord file, or truncated; while iterating.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "empty.tfrecord")
        >>> _ = file.write_bytes(b"")
        >>> list(gristmill.experimental.TFRecordIterDataset(str(file)))
        []
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        kinds = (str, bytes, os.PathLike)
        check_instance("path", path, kinds, "one file; interleave those of several")
        self._path = path

    def __iter__(self) -> DatasetIterator[bytes]:
        return TFRecordDatasetIterator(self._path)


class TFRecordDatasetIterator(DatasetIterator[bytes]):
    """Iterates over the records of a TFRecord file.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._records = read_tf_records(path, verify="none")
        super().__init__()

    def __next__(self) -> bytes:
        self._assert_not_closed()
        return next(self._records)

    def get_state(self) -> Any:
        """Where the next record begins, in bytes of what the file holds."""
        return {"reader_offset": self._records.position.offset}

    @state_checks.checked(state_checks.fields(reader_offset=state_checks.count))
    def set_state(self, state: Any) -> None:
        """Continue at a record."""
        # Which record that is only errors would say.
        place = TFRecordPosition(record=0, offset=state["reader_offset"])
        self._records.close()
        self._records = read_tf_records(self._path, verify="none", position=place)

    def close(self) -> None:
        """Close the file."""
        if not getattr(self, "_closed", True):
            self._records.close()
        super().close()
