"""Implementation of sources.TarDataSource: samples of tar files by number."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from gristmill import _core
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._record_files import expand, find_file
from gristmill.sources._record_source import RecordSource
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._sidecars import sidecar_paths
from gristmill.sources._tf_record import open_all

__all__ = ["TarDataSource"]

Path = str | os.PathLike[str]


class TarDataSource(RecordSource[dict[str, Any]]):
    """Serve the samples of tar files (WebDataset shards) by number.

    Samples are the same as in webdataset: consecutive files whose names are equal up to
    the first dot after the last slash.  The rest of the name after that dot, in lower
    case, is the name of the field.  Folders, links, files without a dot, and files that
    are named ``__x__`` or are in such a folder are ignored.

    A tar file has no index.  The first time a file is opened, its headers are read in
    one pass; a remote file is read completely.  The resulting index is saved as
    ``.NAME.gristmill-index`` next to the file.  If that folder is not writable, it is
    saved in the folder of the environment variable ``GRISTMILL_CACHE_DIR`` (by default
    ``~/.cache/gristmill``), or in shared memory.  The index is rebuilt if the file's
    size or modification time changes.

    Args:
        paths: A path or a list of paths, at least one.  A path may be a URL that fsspec
            supports, such as ``gs://bucket/path``.  If there is no such file, the path
            may be a pattern (``"train-*.tar"``, in the order of names) or stand for
            shards (``"train@4"`` is ``train-00000-of-00004`` and so on).
        access: How files are read: "pread", or "mmap", which is faster for files in the
            page cache, but ends the process if a file is truncated while it is read.
        index_dir: The folder for the indices, created if it is missing.  None for the
            places named above.
        storage_options: Arguments of the file system of URLs, such as credentials.
        remote_options: How remote files are read.  None for the defaults.

    Record ``i`` is a dict as in webdataset: ``"__key__"``, a str, ``"__url__"``, the
    path of the file, and the bytes of each field, such as ``"jpg"``.  `sizes` returns
    the sizes of samples in the file, including headers.

    Raises:
        ValueError: The list of paths is empty, or an option is unknown.
        OSError: A file cannot be opened or does not exist.
        CorruptRecord: A file is not a tar file, or is compressed, truncated or damaged.
            Raised by reading a sample, too, if two of its fields have the same name.

    Example:
        >>> import io, pathlib, tarfile, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "train.tar")
        >>> with tarfile.open(path, "w") as file:
        ...     for name in ("a/0.txt", "a/0.cls", "a/1.txt"):
        ...         file.addfile(tarfile.TarInfo(name), io.BytesIO())
        >>> source = TarDataSource(path)
        >>> len(source), source[1]["__key__"], source[0]["cls"]
        (2, 'a/1', b'')
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.
    _class_name = "TarDataSource"

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
        files = dict(enumerate(open_all(opener, names, "tar files")))
        opener = dataclasses.replace(opener, stamps=[f.stamp for f in files.values()])
        counts = [len(file) for file in files.values()]
        # The number of samples up to the end of each file.
        self._ends = list(itertools.accumulate(counts))
        super().__init__(names, [(0, count) for count in counts], opener, files)

    def _to_element(self, key: int, record: bytes) -> dict[str, Any]:
        path = self._paths[bisect.bisect_right(self._ends, key)]
        return _core.tar_sample(record, path)


@dataclasses.dataclass(frozen=True)
class Opener:
    """Opens the files of a source by number.

    `stamps` are the sizes in bytes and versions of the files whose samples were
    counted.
    """

    paths: FilePaths
    access: str
    index_dir: str | None
    storage_options: Mapping[str, Any] | None
    remote_options: RemoteOptions | None
    stamps: Sequence[tuple[int, int]] | None = None

    def __call__(
        self, part: int, progress: _core.ScanProgress | None = None
    ) -> _core.TarFile:
        path = self.paths[part]
        file = find_file(path, self.access, self.storage_options, self.remote_options)
        index_paths = sidecar_paths(path, "tar", self.index_dir)
        stamp = self.stamps[part] if self.stamps else None
        progress = progress or _core.ScanProgress()
        return _core.TarFile(file, self.access, index_paths, stamp, progress)
