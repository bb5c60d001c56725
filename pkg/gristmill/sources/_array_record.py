"""Implementation of sources.ArrayRecordDataSource."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base import log
from gristmill._base.types import Int64Array
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._record_files import (
    check_name,
    count_records,
    expand,
    open_file,
)
from gristmill.sources._record_source import RecordSource
from gristmill.sources._remote_options import RemoteOptions

__all__ = ["ArrayRecordDataSource"]

PATH_WITH_RANGE = re.compile(r"(.*)\[(\d+):(\d+)\]", re.DOTALL)

# Options of the array_record package's reader.  They tune that reader and do not change
# the records.
READER_OPTIONS = (
    "footer_prefetch_bytes",
    "index_storage_option",
    "max_parallelism",
    "readahead_buffer_size",
)


@runtime_checkable
class FileInstruction(Protocol):
    """A part of a file as in TFDS: `take` records, starting at number `skip`."""

    filename: str
    skip: int
    take: int
    examples_in_shard: int


Path = str | os.PathLike[str] | FileInstruction


class Opener:
    """Opens the files of a source by number; the files share a cache.

    `stamps` are the sizes in bytes and versions of the files that were counted, uint64
    of shape (F, 2). The size is 0 for the other files.
    """

    def __init__(
        self,
        paths: FilePaths,
        cache_bytes: int,
        settings: dict[str, Any],
        stamps: npt.NDArray[np.uint64],
    ) -> None:
        self._arguments = paths, cache_bytes, settings, stamps
        self._cache = _core.ChunkCache(cache_bytes)

    def __call__(self, part: int) -> _core.RecordFile:
        paths, _, settings, stamps = self._arguments
        size, version = stamps[part].tolist()
        stamp = (size, version) if size else None
        return open_file(paths[part], cache=self._cache, stamp=stamp, **settings)

    def __reduce__(self) -> Any:
        return Opener, self._arguments


class ArrayRecordDataSource(RecordSource[bytes]):
    """Serve the records of ArrayRecord files, in the order of the files.

    Args:
        paths: A path, a URL that fsspec supports, such as ``gs://bucket/path``, a
            FileInstruction (filename, skip, take, examples_in_shard), or a list of
            these, at least one.
            ``"path[start:end]"`` stands for a part of a file.  If no part is given, the
            constructor counts the file's records by reading the start of its footer.
            The rest of the footer is read with the file's first record.  If there is no
            such file, the path may be a pattern (``"train-*.array_record"``, in the
            order of names) or stand for shards (``"train.array_record@4"`` is
            ``train.array_record-00000-of-00004`` and so on, ``"@*"`` any number).
        reader_options: Options of the array_record package's reader by name, such as
            ``{"index_storage_option": "offloaded"}``.  They are accepted for
            compatibility and ignored: they tune that reader and do not change the
            records.
        verify: Which hashes are compared: "all" of them, only those of "headers", or
            "none".
        access: How files are read: "pread", or "mmap", which is faster for files in the
            page cache, but ends the process if a file is truncated while it is read.
        cache_bytes: Memory for decoded chunks in each process, if files have several
            records in a chunk.
        index_dir: The folder for the chunk lists of files with 16,384 or more chunks.
            These lists are saved for other processes and later programs.  None saves
            them as ``.NAME.gristmill-index`` next to the file; if that folder is not
            writable, in the folder of the environment variable
            ``GRISTMILL_CACHE_DIR`` (by default ``~/.cache/gristmill``), or in shared
            memory.
        storage_options: Arguments of the file system of URLs, such as credentials.
            All paths must be URLs then.
        remote_options: How remote files are read. None for the defaults.

    Record ``i`` is ``bytes``.

    Raises:
        ValueError: The list of paths is empty, a part exceeds its file, or an option is
            unknown.
        OSError: A file cannot be opened; a RemoteError if it is remote.
        ImportError: fsspec, or a package that it needs for a URL, is not installed.
        CorruptRecord: A file is not an ArrayRecord file, or is damaged.  Raised by
            reading, too, for example if a file changed after it was counted.

    Example:
        >>> import pathlib, tempfile
        >>> from array_record.python.array_record_module import ArrayRecordWriter
        >>> path = pathlib.Path(tempfile.mkdtemp(), "train.array_record")
        >>> writer = ArrayRecordWriter(str(path), "group_size:1")
        >>> for record in (b"one", b"two"):
        ...     writer.write(record)
        >>> writer.close()
        >>> len(ArrayRecordDataSource(path)), ArrayRecordDataSource(path)[1]
        (2, b'two')
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.
    _class_name = "ArrayRecordDataSource"
    _separator = ""

    def __init__(
        self,
        paths: Path | Sequence[Path],
        reader_options: dict[str, str] | None = None,
        *,
        verify: str = "all",
        access: str = "pread",
        cache_bytes: int = 64 << 20,
        index_dir: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        remote_options: RemoteOptions | None = None,
    ) -> None:
        for name in reader_options or {}:
            if name not in READER_OPTIONS:
                known = ", ".join(READER_OPTIONS)
                raise ValueError(f"reader_options must be in {known}, got {name!r}.")
        if verify not in ("all", "headers", "none"):
            raise ValueError(
                f"verify must be 'all', 'headers' or 'none', got {verify!r}."
            )
        named_spans = [
            (name, span)
            for path, span in map(_path_and_range, _as_list(paths))
            for name in (expand(path, storage_options) if span is None else [path])
        ]
        names = FilePaths(path for path, _ in named_spans)
        for path in names:
            check_name(path, access, storage_options)
        settings = {
            "verify": verify,
            "access": access,
            "index_dir": None if index_dir is None else os.fspath(index_dir),
            "storage_options": storage_options,
            "remote_options": remote_options,
        }
        counted = [i for i, (_, span) in enumerate(named_spans) if span is None]
        counts = count_records(
            [names[i] for i in counted], verify, storage_options, remote_options
        )
        count_of_part = dict(zip(counted, counts, strict=True))
        stamps = np.zeros((len(names), 2), np.uint64)
        for i, (_, _, stamp) in count_of_part.items():
            stamps[i] = stamp
        ranges = [
            (0, count_of_part[i][0]) if span is None else span
            for i, (_, span) in enumerate(named_spans)
        ]
        opener = Opener(names, cache_bytes, settings, stamps)
        super().__init__(names, ranges, opener, {})
        # The group size is 1 if there are as many chunks as records. Other files are
        # opened to read it; they have few chunks.
        self._group_sizes = {
            i: 1
            for i, (records, chunks, _) in count_of_part.items()
            if chunks == records
        }
        # Warn of the first file with several chunks of several records.
        for i, (records, chunks, _) in count_of_part.items():
            if 1 < chunks < records:
                _warn_of_groups(self._open_file(i))
                break

    @property
    def groups(self) -> Int64Array:
        """Number of records in each chunk, in order, int64 of shape (G,).

        A chunk is decoded as a whole, so use `samplers.GroupShuffleSampler` to shuffle
        files that have several records in a chunk.

        Raises:
            OSError: A file that was given with a part cannot be opened.
            CorruptRecord: Such a file is not an ArrayRecord file, or is damaged.
        """
        counts = []
        for part, (first, count) in enumerate(self._ranges.tolist()):
            if part not in self._group_sizes:
                self._group_sizes[part] = self._open_file(part).group_size
            size = self._group_sizes[part]
            # The chunks that begin inside the part, which may cut its first and last.
            begins = np.arange(first // size * size + size, first + count, size)
            edges = np.concatenate([[first], begins, [first + count]])
            counts.append(np.diff(edges.astype(np.int64)))
        return np.concatenate(counts)

    def _open_file(self, part: int) -> _core.RecordFile:
        """Open a file by its number, also for later reads of its records."""
        file = cast(_core.RecordFile, self._open_part(part))
        self.reader.open_part(part, file)
        return file


def _as_list(paths: Any) -> Sequence[Path]:
    kinds = (str, pathlib.Path, os.PathLike, FileInstruction)
    if isinstance(paths, kinds):
        return [paths]
    if not isinstance(paths, Sequence):
        raise ValueError(
            "Unsupported path format was used. Path format must be a Sequence, String,"
            f" pathlib.Path or FileInstruction, got {type(paths).__name__}."
        )
    if len(paths) == 0:
        raise ValueError("Paths sequence can not be of 0 length")
    for path in paths:
        if not isinstance(path, kinds):
            raise ValueError(
                "All elements in a path sequence must be of type: String,"
                f" pathlib.Path, or FileInstruction, got {type(path).__name__}."
            )
    return paths


def _path_and_range(path: Path) -> tuple[str, tuple[int, int] | None]:
    """Return a path, and its part as (first record, number of records), or None."""
    if isinstance(path, FileInstruction):
        return os.fspath(path.filename), (int(path.skip), int(path.take))
    name = os.fspath(path)
    if match := PATH_WITH_RANGE.fullmatch(name):
        start, end = int(match[2]), int(match[3])
        if end < start:
            raise ValueError(
                f"{name}: the end of a part must be at least its start {start}, got"
                f" {end}."
            )
        return match[1], (start, end - start)
    return name, None


def _warn_of_groups(file: _core.RecordFile) -> None:
    log.warning(
        "%s has chunks of %s records, and reading one record decodes its whole chunk."
        " For fast random access, write files with 'group_size:1', or shuffle with"
        " samplers.GroupShuffleSampler.",
        file.path,
        file.group_size,
    )
