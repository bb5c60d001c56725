"""Opens files of one format through a data source, for `bench`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gristmill import _core, sources
from gristmill._base.types import Int64Array
from gristmill._cli.file_formats import AnyFormat, detect_format, group_by_format
from gristmill._convert import finding
from gristmill._convert.errors import CommandError, import_optional
from gristmill._convert.inputs import Input, TFRecordInput, reading
from gristmill._convert.line_inputs import JsonLinesInput
from gristmill._convert.paths import stat_regular

# The file that TFDS writes next to its shards.
TFDS_FEATURES_FILE = "features.json"
SEQUENTIAL_NOTE = (
    "{} can only be read in order. To read in any order, convert: gristmill convert {}"
    " OUT"
)
# Maps k record numbers to byte ranges, shape (3, k): the number of the file, the begin
# and the end.
ByteRanges = Callable[[Int64Array], Int64Array]


@dataclasses.dataclass(frozen=True)
class OpenFiles:
    """Open files to measure.

    Attributes:
        name: The files, folders and patterns as the user wrote them.
        files: The paths of the files.
        records: The number of records in all files.
        source: The random-access source, or None if they can only be read in order.
        reader: Reads raw records without building elements, or None.
        byte_ranges: Maps record numbers to byte ranges, or None if these are not known.
        stream: Iterates over the records if `source` is None.
        note: A note for the user.
    """

    name: str
    files: list[str]
    records: int
    source: Any = None
    reader: _core.RecordReader | None = None
    byte_ranges: ByteRanges | None = None
    stream: Callable[[], Iterator[bytes]] = lambda: iter(())
    note: str = ""

    @property
    def bytes(self) -> int:
        """The total size of the files."""
        return sum(map(os.path.getsize, self.files))


def open_files(names: Sequence[str]) -> OpenFiles:
    """Open files of one format.

    Args:
        names: Files, folders and patterns, as a user writes them.

    Raises:
        CommandError: No file is found, the files have several formats, or one cannot be
            read.
    """
    paths = finding.expand(names)
    name = paths[0] if len(paths) == 1 else " ".join(names)
    if len(paths) == 1 and os.path.isdir(paths[0]):
        (folder,) = paths
        if os.path.exists(os.path.join(folder, TFDS_FEATURES_FILE)):
            with reading(folder):
                source = sources.TFDSDataSource(folder)
                files = [*source.records.paths]
                return OpenFiles(name, files, len(source), source)
        paths_by_format, _ = group_by_format(folder)
        if not paths_by_format:
            return _open_class_folders(folder)
    else:
        paths_by_format = _group_paths(paths)
    if len(paths_by_format) > 1:
        raise CommandError(
            f"{name}: expected files of one format, found several formats:"
            f" {', '.join(sorted(paths_by_format))}. Pass only the files of one."
        )
    ((file_format, files),) = paths_by_format.items()
    for file in files:
        stat_regular(file)
    with reading(files[0]):
        return _open_files(name, file_format, files)


def _group_paths(paths: list[str]) -> dict[AnyFormat, list[str]]:
    """Return the files and the files below folders, by format."""
    paths_by_format: dict[AnyFormat, list[str]] = {}
    for path in paths:
        if os.path.isdir(path):
            for file_format, files in group_by_format(path)[0].items():
                paths_by_format.setdefault(file_format, []).extend(files)
        else:
            stat_regular(path)
            paths_by_format.setdefault(detect_format(path), []).append(path)
    if not paths_by_format:
        raise CommandError(
            f"{paths[0]}: expected a file of a known format, found none."
        )
    return paths_by_format


def _open_class_folders(folder: str) -> OpenFiles:
    try:
        source = sources.FolderDataSource(folder)
    except FileNotFoundError as error:
        raise CommandError(
            f"{folder}: this is neither a folder of records nor one of class folders of"
            f" images: {error}"
        ) from None
    files = [path for path, _ in source.samples]
    return OpenFiles(folder, files, len(source), source)


def _open_files(name: str, file_format: AnyFormat, files: list[str]) -> OpenFiles:
    if file_format == "array_record":
        source: Any = sources.ArrayRecordDataSource(files)
        indexed_files = [_index_chunks(_core.RecordFile(file)) for file in files]
        return _open_records(name, files, source, indexed_files)
    if file_format == "tfrecord":
        inputs = [TFRecordInput(file) for file in files]
        if any(file_input.compression for file_input in inputs):
            return _open_streams(name, files, "Compressed TFRecord files", inputs)
        readers = [file_input.open() for file_input in inputs]
        source = sources.TFRecordDataSource(files)
        return _open_records(name, files, source, [*map(_index_frames, readers)])
    if file_format == "jsonl":
        lines = [JsonLinesInput(file, "json") for file in files]
        return _open_streams(name, files, "JSON lines", lines)
    if file_format == "parquet":
        import_optional("pyarrow")
        source = sources.ParquetDataSource(files)
    elif file_format == "tar":
        source = sources.TarDataSource(files)
    else:
        source = sources.BagDataSource(files)
    reader = getattr(source, "reader", None)
    return OpenFiles(name, files, len(source), source, reader)


def _open_streams(
    name: str, files: list[str], kind: str, inputs: Sequence[Input]
) -> OpenFiles:
    """Open files that can only be read in order; `kind` names them in a note."""

    def stream() -> Iterator[bytes]:
        for file_input in inputs:
            yield from file_input.records(0)

    records = sum(file_input.count() for file_input in inputs)
    note = SEQUENTIAL_NOTE.format(kind, name)
    return OpenFiles(name, files, records, stream=stream, note=note)


class _IndexedFile(NamedTuple):
    """A file whose byte ranges are known.

    Attributes:
        records: The number of records.
        byte_limits: Maps record numbers to the begins and ends of their byte ranges.
    """

    records: int
    byte_limits: Callable[[Int64Array], tuple[Int64Array, Int64Array]]


def _open_records(
    name: str, files: list[str], source: Any, indexed_files: Sequence[_IndexedFile]
) -> OpenFiles:
    ends = np.cumsum([file.records for file in indexed_files])

    def byte_ranges(records: Int64Array) -> Int64Array:
        file_numbers = np.searchsorted(ends, records, side="right")
        ranges = np.empty((3, len(records)), np.int64)
        ranges[0] = file_numbers
        for number in np.unique(file_numbers).tolist():
            is_in_file = file_numbers == number
            file = indexed_files[number]
            begin = ends[number] - file.records
            ranges[1:, is_in_file] = file.byte_limits(records[is_in_file] - begin)
        return ranges

    return OpenFiles(name, files, len(source), source, source.reader, byte_ranges)


def _index_chunks(file: _core.RecordFile) -> _IndexedFile:
    """Map records of an ArrayRecord file to their chunks, which are read as a whole."""

    def byte_limits(records: Int64Array) -> tuple[Int64Array, Int64Array]:
        chunks = (records // file.group_size).tolist()
        limits = np.array([file.chunk(chunk)[:2] for chunk in chunks], np.int64)
        return limits[:, 0], limits[:, 1]

    return _IndexedFile(len(file), byte_limits)


def _index_frames(file: _core.TfRecordFile) -> _IndexedFile:
    """Map records of an uncompressed TFRecord file to their frames."""
    # Each record has 12 bytes before and 4 after it.
    ends = np.cumsum(file.sizes(np.arange(len(file))) + 16)
    begins = np.concatenate([[0], ends[:-1]])
    return _IndexedFile(len(file), lambda records: (begins[records], ends[records]))
