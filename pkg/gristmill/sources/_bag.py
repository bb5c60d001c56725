"""Implementation of sources.BagDataSource: records of Bagz files by number."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gristmill import _core
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._record_files import FAR_THREADS, expand, find_file, in_threads
from gristmill.sources._record_source import RecordSource
from gristmill.sources._remote_options import RemoteOptions

if TYPE_CHECKING:
    from gristmill.sources._remote import RemoteFile

__all__ = ["BagDataSource"]

Path = str | os.PathLike[str]


class BagDataSource(RecordSource[bytes]):
    """Serve the records of Bagz files by number, in the order of the files.

    The list of records is at the end of a Bagz file.  The constructor makes one read
    per file to count the records.  The list is read with the file's first record.

    Args:
        paths: A path or a list of paths, at least one.  A path may be a URL that fsspec
            supports, such as ``gs://bucket/path``.  If there is no such file, the path
            may be a pattern (``"train-*.bagz"``, in the order of names) or stand for
            shards (``"train@4.bagz"`` is ``train-00000-of-00004.bagz`` and so on,
            ``"train@*.bagz"`` any number of them).
        compression: "zstd", "none", or "auto": zstd for files named ``.bagz``.
        limits: The place of the list of records: at the "tail" of a file, or
            "separate", in a file ``limits.NAME`` in the same folder.
        access: How files are read: "pread", or "mmap", which is faster for files in the
            page cache, but ends the process if a file is truncated while it is read.
        storage_options: Arguments of the file system of URLs, such as credentials.
        remote_options: How remote files are read.  None for the defaults.

    Record ``i`` is ``bytes``: record ``i`` of ``bagz.Reader`` over all shards.

    Raises:
        ValueError: The list of paths is empty, or an option is unknown.
        OSError: A file cannot be opened or does not exist.
        CorruptRecord: A file is not a Bagz file, or is truncated or damaged.

    Example:
        >>> import pathlib, struct, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "train.bag")
        >>> _ = path.write_bytes(b"onetwo" + struct.pack("<QQ", 3, 6))
        >>> BagDataSource(path)[1]
        b'two'
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.
    _class_name = "BagDataSource"

    def __init__(
        self,
        paths: Path | Sequence[Path],
        *,
        compression: str = "auto",
        limits: str = "tail",
        access: str = "pread",
        storage_options: Mapping[str, Any] | None = None,
        remote_options: RemoteOptions | None = None,
    ) -> None:
        _check("compression", compression, ("auto", "zstd", "none"))
        _check("limits", limits, ("tail", "separate"))
        names = FilePaths(expand(paths, storage_options))
        files = Files(
            names,
            compression,
            limits == "separate",
            access,
            storage_options,
            remote_options,
        )
        counts = in_threads(files.count, range(len(names)), FAR_THREADS)
        files = dataclasses.replace(files, stamps=[stamp for _, stamp in counts])
        super().__init__(names, [(0, count) for count, _ in counts], files, {})


@dataclasses.dataclass(frozen=True)
class Files:
    """Opens the files of a source by number.

    `has_limits_files` is True if lists of records are in files of their own. `stamps`
    are the sizes in bytes and versions of the files whose records were counted.
    """

    paths: FilePaths
    compression: str
    has_limits_files: bool
    access: str
    storage_options: Mapping[str, Any] | None
    remote_options: RemoteOptions | None
    stamps: Sequence[tuple[int, int]] | None = None

    def __call__(self, part: int) -> _core.BagFile:
        zstd = self.compression == "zstd" or (
            self.compression == "auto" and self.paths[part].endswith(".bagz")
        )
        stamp = self.stamps[part] if self.stamps else None
        return _core.BagFile(*self._data_and_limits(part), self.access, zstd, stamp)

    def count(self, part: int) -> tuple[int, tuple[int, int]]:
        """Return the number of records of a file, and its stamp."""
        return _core.count_bag(*self._data_and_limits(part), self.access)

    def _data_and_limits(
        self, part: int
    ) -> tuple[str | RemoteFile, str | RemoteFile | None]:
        """Return a file by its number, and its file of limits, or None."""
        path = self.paths[part]
        folder, name = os.path.split(path)
        limits = os.path.join(folder, f"limits.{name}")
        return self._find(path), self._find(limits) if self.has_limits_files else None

    def _find(self, path: str) -> str | RemoteFile:
        return find_file(path, self.access, self.storage_options, self.remote_options)


def _check(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
