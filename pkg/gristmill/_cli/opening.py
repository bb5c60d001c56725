"""Opens files of one format through a data source, for `bench`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gristmill import _core, sources
from gristmill._base.types import Int64Array
from gristmill._cli.forms import Form, files_by_form, form_of
from gristmill._convert import finding
from gristmill._convert.errors import CommandError, import_optional
from gristmill._convert.inputs import Input, JsonLinesInput, TFRecordInput, reading
from gristmill._convert.paths import stat_regular

# The file that TFDS writes next to its shards.
TFDS_FILE = "features.json"
IN_ORDER = (
    "{} can only be read in order. To read in any order, convert: gristmill convert {}"
    " OUT"
)
# Maps k record numbers to byte ranges, shape (3, k): file number, begin, end.
Places = Callable[[Int64Array], Int64Array]


@dataclasses.dataclass(frozen=True)
class OpenFiles:
    """Open files to measure.

    Attributes:
        name: The files, folders and patterns as the user wrote them.
        files: The paths of the files.
        records: The number of records in all files.
        source: The random-access source, or None if they can only be read in order.
        reader: Reads raw records without building elements, or None.
        places: Maps record numbers to byte ranges, or None if these are not known.
        stream: Iterates over the records if `source` is None.
        note: A note for the user.
    """

    name: str
    files: list[str]
    records: int
    source: Any = None
    reader: _core.RecordReader | None = None
    places: Places | None = None
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
        if os.path.exists(os.path.join(folder, TFDS_FILE)):
            with reading(folder):
                source = sources.TFDSDataSource(folder)
                files = [*source.records.paths]
                return OpenFiles(name, files, len(source), source)
        found, _ = files_by_form(folder)
        if not found:
            return _class_folders(folder)
    else:
        found = _by_form(paths)
    if len(found) > 1:
        raise CommandError(
            f"{name}: expected files of one format, found several formats:"
            f" {', '.join(sorted(found))}. Pass only the files of one."
        )
    ((form, files),) = found.items()
    for file in files:
        stat_regular(file)
    with reading(files[0]):
        return _open(name, form, files)


def _by_form(paths: list[str]) -> dict[Form, list[str]]:
    found: dict[Form, list[str]] = {}
    for path in paths:
        if os.path.isdir(path):
            for form, files in files_by_form(path)[0].items():
                found.setdefault(form, []).extend(files)
        else:
            stat_regular(path)
            found.setdefault(form_of(path), []).append(path)
    if not found:
        raise CommandError(
            f"{paths[0]}: expected a file of a known format, found none."
        )
    return found


def _class_folders(folder: str) -> OpenFiles:
    try:
        source = sources.FolderDataSource(folder)
    except FileNotFoundError as error:
        raise CommandError(
            f"{folder}: this is neither a folder of records nor one of class folders of"
            f" images: {error}"
        ) from None
    files = [path for path, _ in source.samples]
    return OpenFiles(folder, files, len(source), source)


def _open(name: str, form: Form, files: list[str]) -> OpenFiles:
    if form == "array_record":
        source: Any = sources.ArrayRecordDataSource(files)
        places = [_places_of_chunks(_core.RecordFile(file)) for file in files]
        return _open_records(name, files, source, places)
    if form == "tfrecord":
        inputs = [TFRecordInput(file) for file in files]
        if any(each.compression for each in inputs):
            return _open_streams(name, files, "Compressed TFRecord files", inputs)
        readers = [each.open() for each in inputs]
        source = sources.TFRecordDataSource(files)
        return _open_records(name, files, source, [*map(_places_of_frames, readers)])
    if form == "jsonl":
        lines = [JsonLinesInput(file, "json") for file in files]
        return _open_streams(name, files, "JSON lines", lines)
    if form == "parquet":
        import_optional("pyarrow")
        source = sources.ParquetDataSource(files)
    elif form == "tar":
        source = sources.TarDataSource(files)
    else:
        source = sources.BagDataSource(files)
    reader = getattr(source, "reader", None)
    return OpenFiles(name, files, len(source), source, reader)


def _open_streams(
    name: str, files: list[str], what: str, inputs: Sequence[Input]
) -> OpenFiles:
    def stream() -> Iterator[bytes]:
        for each in inputs:
            yield from each.records(0)

    records = sum(each.count() for each in inputs)
    note = IN_ORDER.format(what, name)
    return OpenFiles(name, files, records, stream=stream, note=note)


# A file's number of records, and a function that returns the begin and the end of
# each record.
_PlacesOfFile = tuple[int, Callable[[Int64Array], tuple[Int64Array, Int64Array]]]


def _open_records(
    name: str, files: list[str], source: Any, places: Sequence[_PlacesOfFile]
) -> OpenFiles:
    lasts = np.cumsum([records for records, _ in places])

    def places_of(records: Int64Array) -> Int64Array:
        numbers = np.searchsorted(lasts, records, side="right")
        found = np.empty((3, len(records)), np.int64)
        found[0] = numbers
        for number in np.unique(numbers).tolist():
            inside = numbers == number
            count, limits = places[number]
            found[1:, inside] = limits(records[inside] - (lasts[number] - count))
        return found

    return OpenFiles(name, files, len(source), source, source.reader, places_of)


def _places_of_chunks(file: _core.RecordFile) -> _PlacesOfFile:
    def limits(records: Int64Array) -> tuple[Int64Array, Int64Array]:
        chunks = (records // file.group_size).tolist()
        found = np.array([file.chunk(chunk)[:2] for chunk in chunks], np.int64)
        return found[:, 0], found[:, 1]

    return len(file), limits


def _places_of_frames(file: _core.TfRecordFile) -> _PlacesOfFile:
    # Each record has 12 bytes before and 4 after it.
    ends = np.cumsum(file.sizes(np.arange(len(file))) + 16)
    begins = np.concatenate([[0], ends[:-1]])
    return len(file), lambda records: (begins[records], ends[records])
