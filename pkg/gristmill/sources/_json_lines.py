"""Implementation of sources.JsonLinesDataSource: lines of text files by number."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gristmill import _core
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._record_files import expand, find_file
from gristmill.sources._record_source import RecordSource
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._sidecars import sidecar_paths, warn_if_not_saved
from gristmill.sources._tf_record import open_all

__all__ = ["JsonLinesDataSource"]

Path = str | os.PathLike[str]
# Memory of a source for decompressed frames, in each process.
CACHE_BYTES = 64 << 20


class JsonLinesDataSource(RecordSource[bytes]):
    r"""Serve the lines of JSON Lines files by number, in the order of the files.

    A text file has no index.  The first time a file is opened, its lines are found in
    one pass.  The resulting index is saved as ``.NAME.gristmill-index`` next to the
    file.  If that folder is not writable, it is saved in the folder of the environment
    variable ``GRISTMILL_CACHE_DIR`` (by default ``~/.cache/gristmill``), or in shared
    memory.  The index is rebuilt if the file's size or modification time changes.
    Indexing a remote file reads all of it.

    Args:
        paths: A path or a list of paths, at least one.  A path may be a URL that fsspec
            supports, such as ``gs://bucket/path``.  If there is no such file, the path
            may be a pattern (``"train-*.jsonl"``, in the order of names) or stand for
            shards (``"train.jsonl@4"`` is ``train.jsonl-00000-of-00004`` and so on).
        access: How files are read: "pread", or "mmap", which is faster for files in the
            page cache, but ends the process if a file is truncated while it is read.
        index_dir: The folder for the indices, created if it is missing.  None for the
            places named above.
        storage_options: Arguments of the file system of URLs, such as credentials.
        remote_options: How remote files are read.  None for the defaults.

    A file may be compressed by gzip or zstd.  Reading a line decompresses the gzip
    member or zstd frame that contains it, so a frame must not have more than 64 MiB
    when it is decompressed.  Programs such as ``bgzip`` and ``pzstd`` write files of
    small frames.  The last 64 MiB of frames are kept, so reading lines in the order of
    the file decompresses each frame once.  Each thread that reads has one more frame in
    memory while it decompresses it.  The index of frames is a file of its own,
    ``.NAME.gristmill-index-frames``.

    Record ``i`` is ``bytes``: a line without the bytes that end it (``"\n"`` or
    ``"\r\n"``).  Blank lines are skipped.  To parse lines, use ``json.loads`` as a
    step.  The lines need not be JSON.

    Raises:
        ValueError: The list of paths is empty, or an option is unknown.
        OSError: A file cannot be opened or does not exist.
        CorruptRecord: A file changes while it is indexed, is damaged, or is compressed
            in another way.

    Example:
        >>> import json, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "train.jsonl")
        >>> _ = path.write_text('{"text": "one"}\n{"text": "two"}\n')
        >>> json.loads(JsonLinesDataSource(path)[1])
        {'text': 'two'}
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.
    _class_name = "JsonLinesDataSource"

    def __init__(
        self,
        paths: Path | Sequence[Path],
        *,
        access: str = "pread",
        index_dir: Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
        remote_options: RemoteOptions | None = None,
    ) -> None:
        names = FilePaths(expand(paths, storage_options))
        folder = None if index_dir is None else os.fspath(index_dir)
        opener = Opener(names, access, folder, storage_options, remote_options)
        files = dict(enumerate(open_all(opener, names, "text files, once")))
        ranges = [(0, len(file)) for file in files.values()]
        super().__init__(names, ranges, opener, files)


class Opener:
    """Opens the files of a source by number; compressed files share a cache."""

    def __init__(
        self,
        paths: FilePaths,
        access: str,
        index_dir: str | None,
        storage_options: Mapping[str, Any] | None,
        remote_options: RemoteOptions | None,
    ) -> None:
        self._arguments = paths, access, index_dir, storage_options, remote_options
        self._cache = _core.ChunkCache(CACHE_BYTES)

    def __call__(
        self, part: int, progress: _core.ScanProgress | None = None
    ) -> _core.SpanFile:
        paths, access, index_dir, storage_options, remote_options = self._arguments
        path = paths[part]
        found = find_file(path, access, storage_options, remote_options)
        index_paths = sidecar_paths(path, "lines", index_dir)
        progress = progress or _core.ScanProgress()
        file = _core.open_line_file(found, access, index_paths, self._cache, progress)
        warn_if_not_saved(file)
        return file

    def __reduce__(self) -> Any:
        return Opener, self._arguments
