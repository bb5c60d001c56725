"""The class behind sources.TFRecordDataSource: TFRecord files by record number."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

from gristmill import _core, _log
from gristmill._record_source import RecordSource, name_of

__all__ = ["TFRecordDataSource"]

SIDECAR_SUFFIX = ".gristmill-index"
SHARDED = re.compile(r"(.+)@(\d+|\*)", re.DOTALL)
GLOB_CHARACTERS = re.compile(r"[*?[]")

# Indexing more than this takes long enough to do it in a thread, interruptibly.
QUICK_BYTES = 64 << 20
# Indexing is mentioned once it has taken this long, and then now and then.
QUIET_S = 1.0
REPORT_S = 10.0

Path = str | os.PathLike[str]


class TFRecordDataSource(RecordSource):
    """Serve the records of TFRecord files by number, in the order of the files.

    A TFRecord file does not say where its records are.  When a file is opened for the
    first time its records are counted in one pass, at the speed of the disk, and the
    result is kept as ``.NAME.gristmill-index`` beside the file, or, where that folder
    cannot be written to, in the folder of the environment variable
    ``GRISTMILL_CACHE_DIR`` (by default ``~/.cache/gristmill``).  It is made anew when
    the file's size or time of change is another.

    Args:
        paths: A path or a list of paths, at least one.  One that names no file may be a
            pattern (``"train-*.tfrecord"``, in the order of names) or stand for shards
            (``"train.tfrecord@4"`` is ``train.tfrecord-00000-of-00004`` and so on,
            ``"train.tfrecord@*"`` any number of them).
        verify: Which checksums are compared when a record is read: "all", only that of
            its length ("headers"), or "none".
        access: How files are read: "pread", or "mmap", which is faster where they
            are in the page cache, but ends the process when a file is truncated
            while it is read.
        index_dir: The folder for the indices, made if it is missing.  None for the
            places named above.

    Record ``i`` is ``bytes``.

    Raises:
        ValueError: The list of paths is empty, or an option is unknown.
        OSError: A file cannot be opened, or no file has the name.
        CorruptRecord: A file is no TFRecord file, is compressed (read it by
            `read_tf_records`), or is truncated or damaged between its records.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "empty.tfrecord")
        >>> _ = file.write_bytes(b"")
        >>> len(TFRecordDataSource(file))
        0
    """

    def __init__(
        self,
        paths: Path | Sequence[Path],
        *,
        verify: str = "all",
        access: str = "pread",
        index_dir: Path | None = None,
    ) -> None:
        self._paths = _expand(paths)
        folder = None if index_dir is None else os.fspath(index_dir)
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        opener = Opener(tuple(self._paths), verify, access, folder)
        files = _open_all(opener)
        ranges = [(0, len(file)) for file in files]
        super().__init__(name_of(self._paths), ranges, opener)
        for part, file in enumerate(files):
            self.reader.open_part(part, file)

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return self._paths

    def __repr__(self) -> str:
        # Of paths alone: saved states are compared by it.
        sha1 = hashlib.sha1("\n".join(self._paths).encode(), usedforsecurity=False)
        return f"TFRecordDataSource(hash_of_paths={sha1.hexdigest()})"


@dataclasses.dataclass(frozen=True)
class Opener:
    """Opens the files of a source, by their number."""

    paths: tuple[str, ...]
    verify: str
    access: str
    index_dir: str | None

    def __call__(
        self, part: int, progress: _core.ScanProgress | None = None
    ) -> _core.TfRecordFile:
        path = self.paths[part]
        sidecars = sidecar_paths(path, self.index_dir)
        file = _core.TfRecordFile(
            path,
            self.verify,
            self.access,
            sidecars,
            progress or _core.ScanProgress(),
        )
        if not file.sidecar:
            _save_index(file, sidecars)
        return file


def sidecar_paths(path: str, index_dir: str | None = None) -> list[str]:
    """Return where the index of a TFRecord file may lie, the best place first.

    Args:
        path: The TFRecord file.
        index_dir: The only folder to consider, or None.
    """
    folder, name = os.path.split(os.path.abspath(path))
    # Files of one name from several folders may share a folder of indices.
    digest = hashlib.sha1(folder.encode(), usedforsecurity=False).hexdigest()[:16]
    elsewhere = f"{name}-{digest}{SIDECAR_SUFFIX}"
    if index_dir is not None:
        return [os.path.join(index_dir, elsewhere)]
    # Hidden, so that patterns for the data files do not match it.
    beside = os.path.join(folder, f".{name}{SIDECAR_SUFFIX}")
    return [beside, os.path.join(cache_dir(), "tf_record", elsewhere)]


def cache_dir() -> str:
    """Return the folder for what may be made again; it need not exist."""
    if folder := os.environ.get("GRISTMILL_CACHE_DIR"):
        return folder
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(caches, "gristmill")


def _save_index(file: _core.TfRecordFile, sidecars: Sequence[str]) -> None:
    reason: OSError | None = None
    for sidecar in sidecars:
        try:
            # The folder of a data file is there, others may not be.
            os.makedirs(os.path.dirname(sidecar), exist_ok=True)
            file.save_index(sidecar)
        except OSError as error:
            reason = error
        else:
            return
    _log.warning(
        "The index of %s cannot be kept (%s), so that the file is read through each"
        " time it is opened. Set GRISTMILL_CACHE_DIR, or index_dir=, to a folder that"
        " can be written to.",
        file.path,
        reason,
    )


def _open_all(opener: Opener) -> list[_core.TfRecordFile]:
    parts = range(len(opener.paths))
    sizes = [os.path.getsize(path) for path in opener.paths]
    if len(parts) == 1 and sizes[0] < QUICK_BYTES:
        return [opener(0)]
    from concurrent import futures  # Slow to import.

    report = _Report(sizes)
    with futures.ThreadPoolExecutor() as pool:
        opening = [pool.submit(opener, part, report.progress[part]) for part in parts]
        try:
            while _are_pending(futures.wait(opening, QUIET_S, "FIRST_EXCEPTION")):
                report.update()
            return [future.result() for future in opening]
        finally:
            # After an error or an interrupt nobody needs the others.
            pool.shutdown(wait=False, cancel_futures=True)
            for progress in report.progress:
                progress.cancel()
            report.finish()


def _are_pending(waited: Any) -> bool:
    return bool(waited.not_done) and not any(f.exception() for f in waited.done)


class _Report:
    """Says how far indexing is: on a terminal in place, elsewhere in the log."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.progress = [_core.ScanProgress() for _ in sizes]
        self._total = sum(sizes)
        self._start = time.monotonic()
        self._next = self._start
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown = False

    def update(self) -> None:
        done = sum(progress.done_bytes for progress in self.progress)
        text = (
            f"Indexing {len(self.progress)} TFRecord files, once:"
            f" {done / 1e9:.1f} of {self._total / 1e9:.1f} GB"
        )
        if self._terminal:
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
        elif time.monotonic() >= self._next:
            _log.info("%s", text)
            self._next = time.monotonic() + REPORT_S
        self._shown = True

    def finish(self) -> None:
        if not self._shown:
            return
        if self._terminal:
            sys.stderr.write("\n")
        _log.info("Indexed in %.1f s.", time.monotonic() - self._start)


def _expand(paths: Any) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Sequence):
        raise TypeError(
            f"paths is a {type(paths).__name__}, but must be a path or a list of paths."
        )
    found: list[str] = []
    for path in paths:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                f"paths has a {type(path).__name__}, but must have only paths."
            )
        found.extend(_files_of(os.fspath(path)))
    if not found:
        raise ValueError("paths is an empty list. Pass at least one path.")
    return found


def _files_of(path: str) -> list[str]:
    if os.path.exists(path):
        return [path]
    if sharded := SHARDED.fullmatch(path):
        return _shards(*sharded.groups())
    if not GLOB_CHARACTERS.search(path):
        return [path]  # Opening it says what is wrong.
    found = sorted(glob.glob(path))
    if not found:
        raise FileNotFoundError(f"No file matches the pattern {path}.")
    return found


def _shards(base: str, count: str) -> list[str]:
    if count != "*":
        total = int(count)
        return [f"{base}-{i:05d}-of-{total:05d}" for i in range(total)]
    found = sorted(glob.glob(f"{glob.escape(base)}-?????-of-?????"))
    if not found:
        raise FileNotFoundError(f"No file is a shard of {base}: {base}-00000-of-*.")
    if (wanted := _shards(base, found[0][-5:])) != found:
        missing = sorted(set(wanted) - set(found))
        raise FileNotFoundError(
            f"The shards of {base} are not complete, or of two sets: {len(found)} files"
            f" were found, {len(wanted)} expected, missing"
            f" {missing[0] if missing else 'none'}."
        )
    return found


# Pickles name the public place, which imports this module when it is asked.
TFRecordDataSource.__module__ = "gristmill.sources"
