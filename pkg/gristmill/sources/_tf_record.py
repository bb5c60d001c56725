"""Implementation of sources.TFRecordDataSource: TFRecord files by record number."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from gristmill import _core
from gristmill._base import log
from gristmill._base.progress_bar import Count, Progress, is_watched, new_display
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._record_files import expand, find_file
from gristmill.sources._record_source import RecordSource
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._sidecars import sidecar_paths, warn_if_not_saved
from gristmill.sources._urls import is_local, local_path

__all__ = ["TFRecordDataSource"]

# Progress of indexing is first reported after this time, and then repeatedly.
QUIET_S = 1.0
REPORT_S = 10.0

Path = str | os.PathLike[str]
ReaderT = TypeVar("ReaderT", bound=_core.RecordReader)


class TFRecordDataSource(RecordSource[bytes]):
    """Serve the records of TFRecord files by number, in the order of the files.

    A TFRecord file has no index.  The first time a file is opened, its records are
    counted in one pass, at the speed of the disk.  The resulting index is saved as
    ``.NAME.gristmill-index`` next to the file.  If that folder is not writable, it is
    saved in the folder of the environment variable ``GRISTMILL_CACHE_DIR`` (by default
    ``~/.cache/gristmill``), or in shared memory.  The index is rebuilt if the file's
    size or modification time changes.  Indices of remote files are saved in the
    cache folder, too; indexing such a file reads all of it.

    Args:
        paths: A path or a list of paths, at least one.  A path may be a URL that fsspec
            supports, such as ``gs://bucket/path``.  If there is no such file, the path
            may be a pattern (``"train-*.tfrecord"``, in the order of names) or stand
            for shards (``"train.tfrecord@4"`` is ``train.tfrecord-00000-of-00004`` and
            so on, ``"train.tfrecord@*"`` any number of them).
        verify: Which checksums are compared when a record is read: "all", only that of
            its length ("headers"), or "none".  The length itself is always compared
            with the index.
        access: How files are read: "pread", or "mmap", which is faster for files in the
            page cache, but ends the process if a file is truncated while it is read.
        index_dir: The folder for the indices, created if it is missing.  None for the
            places named above.
        storage_options: Arguments of the file system of URLs, such as credentials.
        remote_options: How remote files are read.  None for the defaults.

    Record ``i`` is ``bytes``.

    Raises:
        ValueError: The list of paths is empty, or an option is unknown.
        OSError: A file cannot be opened or does not exist.
        CorruptRecord: A file is not a TFRecord file, is compressed (read it with
            `read_tf_records`), or is truncated or damaged between its records.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "empty.tfrecord")
        >>> _ = file.write_bytes(b"")
        >>> len(TFRecordDataSource(file))
        0
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.
    _class_name = "TFRecordDataSource"

    def __init__(
        self,
        paths: Path | Sequence[Path],
        *,
        verify: str = "all",
        access: str = "pread",
        index_dir: Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
        remote_options: RemoteOptions | None = None,
    ) -> None:
        names = FilePaths(expand(paths, storage_options))
        folder = None if index_dir is None else os.fspath(index_dir)
        opener = Opener(names, verify, access, folder, storage_options, remote_options)
        files = dict(enumerate(open_all(opener, names, "TFRecord files, once")))
        ranges = [(0, len(file)) for file in files.values()]
        super().__init__(names, ranges, opener, files)


@dataclasses.dataclass(frozen=True)
class Opener:
    """Opens the files of a source by number."""

    paths: FilePaths
    verify: str
    access: str
    index_dir: str | None
    storage_options: Mapping[str, Any] | None
    remote_options: RemoteOptions | None

    def __call__(
        self, part: int, progress: _core.ScanProgress | None = None
    ) -> _core.TfRecordFile:
        path = self.paths[part]
        index_paths = sidecar_paths(path, "tf_record", self.index_dir)
        progress = progress or _core.ScanProgress()
        file_on_disk = find_file(
            path, self.access, self.storage_options, self.remote_options
        )
        file = _core.TfRecordFile(
            file_on_disk, self.verify, self.access, index_paths, progress
        )
        warn_if_not_saved(file)
        return file


def open_all(
    opener: Callable[[int, _core.ScanProgress], ReaderT],
    paths: Sequence[str],
    kind: str,
) -> list[ReaderT]:
    """Open files that must be read through for indexing, and report the progress.

    `opener` opens a file by its number; `kind` is the name of the files in messages.
    Returns the readers in the order of `paths`.
    """
    parts = range(len(paths))
    sizes = [
        os.path.getsize(local_path(path)) if is_local(path) else None for path in paths
    ]
    from concurrent import futures  # Slow to import.

    report = _Report(sizes, kind)
    with futures.ThreadPoolExecutor() as pool:
        pending = [pool.submit(opener, part, report.progress[part]) for part in parts]
        try:
            while True:
                result = futures.wait(pending, QUIET_S, "FIRST_EXCEPTION")
                for future in result.done:
                    future.result()  # Raises if opening failed.
                if not result.not_done:
                    return [future.result() for future in pending]
                report.update()
        finally:
            # After an error or an interrupt the other files are not needed.
            pool.shutdown(wait=False, cancel_futures=True)
            for progress in report.progress:
                progress.cancel()
            report.finish()


class _Report:
    """Shows the progress of indexing: in place in a terminal or notebook, else logs.

    The scanning threads count in `progress`; only the thread of `open_all` shows it.
    """

    def __init__(
        self, sizes: Sequence[int | None], kind: str = "TFRecord files, once"
    ) -> None:
        self._kind = kind
        self.progress = [_core.ScanProgress() for _ in sizes]
        local_sizes = [size for size in sizes if size is not None]
        # In bytes; None if it is unknown, because a file is remote.
        self._total = sum(local_sizes) if len(local_sizes) == len(sizes) else None
        self._started_at = time.monotonic()
        self._next_log_at = self._started_at
        self._watched = is_watched()
        self._bar = Progress()
        self._is_shown = False
        self._done_mb = 0  # The number that the bar shows.

    def update(self) -> None:
        done_bytes = sum(progress.done_bytes for progress in self.progress)
        if done_bytes == 0:
            return  # Files are being opened, but none is read through.
        if self._watched:
            self._draw(done_bytes // 10**6)
        elif time.monotonic() >= self._next_log_at:
            of_total = "" if self._total is None else f" of {self._total / 1e9:.1f}"
            files = f"{len(self.progress)} {self._kind}"
            log.info("Indexing %s: %.1f%s GB", files, done_bytes / 1e9, of_total)
            self._next_log_at = time.monotonic() + REPORT_S
        self._is_shown = True

    def finish(self) -> None:
        if not self._is_shown:
            return
        self._bar.end()
        log.info("Indexed in %.1f s.", time.monotonic() - self._started_at)

    def _draw(self, done_mb: int) -> None:
        if not self._is_shown:
            # Deferred, because rich is slow to import.
            self._bar = Count() if self._total is None else new_display()
            task = f"MB indexed of {len(self.progress)} {self._kind}"
            self._bar.begin(task, (self._total or 0) // 10**6)
        self._bar.advance(done_mb - self._done_mb)
        self._done_mb = done_mb
