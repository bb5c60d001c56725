"""Implementation of sources.MDSDataSource: data sets of MosaicML Streaming."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gristmill import _core
from gristmill._base.argument_checks import kind
from gristmill.errors import CorruptRecord
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._mds_columns import DecodeError
from gristmill.sources._mds_hashes import check_hash, digest_of
from gristmill.sources._mds_index import Shard, read_indices
from gristmill.sources._mds_unpacking import unpack, unpacked_path, warn_if_full
from gristmill.sources._record_files import check_name, find_file
from gristmill.sources._record_source import RecordSource
from gristmill.sources._remote_options import RemoteOptions

if TYPE_CHECKING:
    from gristmill.sources._remote import RemoteFile

__all__ = ["MDSDataSource"]

Path = str | os.PathLike[str]
PATHS = (str, os.PathLike)


class MDSDataSource(RecordSource[dict[str, Any]]):
    """Serve the samples of MosaicML Streaming's data sets (MDS) by number.

    A data set is a folder with an ``index.json`` and shards.  The constructor reads
    only the ``index.json``; a shard is opened when one of its samples is read first.

    Samples in a compressed shard cannot be read by number.  The shard is therefore
    decompressed when it is opened first, to a file in `cache_dir`, which all processes
    of the machine and all later runs use.  These files need as much space as the
    uncompressed data set.  Nothing removes them: you may, when no program reads them.

    Args:
        folders: A folder or a list of folders, at least one.  A folder may be a URL
            that fsspec supports, such as ``s3://bucket/path``.  The data sets follow
            each other.
        allow_pickle: Whether to read columns with the encoding ``"pkl"``.  Reading a
            pickle may run any code, so its author must be trustworthy.
        validate_hash: The name of a hash in the ``index.json``, such as ``"sha1"``.
            Each shard is compared with it when a process opens the shard, for which the
            whole shard is read.  None to compare nothing.
        cache_dir: The folder for decompressed shards, created if it is missing.  None
            for ``mds`` in the folder of the environment variable
            ``GRISTMILL_CACHE_DIR`` (by default ``~/.cache/gristmill``).
        access: How shards are read: "pread", or "mmap", which is faster for files in
            the page cache, but ends the process if a file is truncated while it is
            read.  The list of samples at the beginning of a shard is always mapped.
        storage_options: Arguments of the file system of URLs, such as credentials.
        remote_options: How remote files are read.  None for the defaults.

    Record ``i`` is a dict from the names of the columns to their values, the same as
    ``streaming.LocalDataset(folder)[i]``.  Arrays are read-only.

    Raises:
        TypeError: A folder is not a path.
        ValueError: The list is empty, an option is unknown, a column has an unknown
            encoding, or it has pickles and `allow_pickle` is False.
        OSError: An ``index.json`` or a shard cannot be opened or does not exist.
        CorruptRecord: A file is truncated, damaged, or not one of MosaicML Streaming.
            Raised by reading a sample, too.
        ImportError: A column has images, and the package pillow is not installed; or a
            pickle needs a module that cannot be imported.

    Example:
        >>> import json, pathlib, struct, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> shard = struct.pack("<4I", 2, 16, 24, 32) + struct.pack("<2q", 5, 7)
        >>> _ = (folder / "shard.00000.mds").write_bytes(shard)
        >>> file = {"basename": "shard.00000.mds", "bytes": 32, "hashes": {}}
        >>> columns = {"names": ["x"], "encodings": ["int"], "sizes": [8]}
        >>> entry = {f"column_{key}": value for key, value in columns.items()}
        >>> entry |= {"version": 2, "format": "mds", "compression": None, "samples": 2}
        >>> index = {"version": 2, "shards": [{**entry, "raw_data": file}]}
        >>> _ = (folder / "index.json").write_text(json.dumps(index))
        >>> MDSDataSource(folder)[1]
        {'x': 7}
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.
    _class_name = "MDSDataSource"

    def __init__(
        self,
        folders: Path | Sequence[Path],
        *,
        allow_pickle: bool = False,
        validate_hash: str | None = None,
        cache_dir: Path | None = None,
        access: str = "pread",
        storage_options: Mapping[str, Any] | None = None,
        remote_options: RemoteOptions | None = None,
    ) -> None:
        names = _folder_names(folders)
        for name in names:
            check_name(name, access, storage_options)
        shards = read_indices(names, storage_options, remote_options)
        schemas = list({shard.columns: None for shard in shards})
        for columns in schemas:
            columns.check(allow_pickle=allow_pickle)
        paths = FilePaths([shard.path for shard in shards])
        opener = Opener(
            FilePaths([shard.file for shard in shards]),
            [(shard.samples, shard.bytes) for shard in shards],
            [shard.codec for shard in shards],
            _copies(shards, cache_dir),
            _digests(shards, validate_hash),
            access,
            storage_options,
            remote_options,
        )
        # The number of samples up to the end of each shard.
        self._ends = list(itertools.accumulate(shard.samples for shard in shards))
        self._schemas = schemas
        self._schema_of = [schemas.index(shard.columns) for shard in shards]
        ranges = [(0, shard.samples) for shard in shards]
        super().__init__(paths or FilePaths(names), ranges, opener, {})

    def _to_element(self, key: int, record: bytes) -> dict[str, Any]:
        part = bisect.bisect_right(self._ends, key)
        try:
            return self._schemas[self._schema_of[part]].decode(record)
        except (DecodeError, ImportError) as error:
            sample = key - (self._ends[part - 1] if part else 0)
            text = f"{self._paths[part]}: sample {sample}: {error}"
            if isinstance(error, ImportError):
                raise ImportError(text, name=error.name) from error
            raise CorruptRecord(text) from error


@dataclasses.dataclass(frozen=True)
class Opener:
    """Opens the shards of a source by number.

    `files` are the shards, compressed or not.  `sizes` are the samples and the
    uncompressed bytes of each shard.  `codecs` are their compressions, or None, and
    `copies` the paths of their decompressed copies, or "".  `digests` are the name of
    a hash and the digest of each shard, or None.
    """

    files: FilePaths
    sizes: Sequence[tuple[int, int]]
    codecs: Sequence[str | None]
    copies: FilePaths
    digests: tuple[str, Sequence[str]] | None
    access: str
    storage_options: Mapping[str, Any] | None
    remote_options: RemoteOptions | None

    def __call__(self, part: int) -> _core.SpanFile:
        samples, size = self.sizes[part]
        path, codec = self.files[part], self.codecs[part]
        file: str | RemoteFile
        if codec:
            file = self.copies[part]
            if not os.path.exists(file):
                unpack(self._find(path), codec, size, file)
        else:
            file = self._find(path)
        try:
            if self.digests:
                algorithm, digests = self.digests
                check_hash(file, path, algorithm, digests[part])
            return _core.open_mds_shard(file, self.access, samples, size)
        except CorruptRecord:
            if codec:  # The next run decompresses the shard again.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.copies[part])
            raise

    def _find(self, path: str) -> str | RemoteFile:
        return find_file(path, self.access, self.storage_options, self.remote_options)


def _folder_names(folders: Any) -> list[str]:
    """Return the names of one folder, or of a list of folders."""
    if isinstance(folders, PATHS):
        folders = [folders]
    if not isinstance(folders, Sequence):
        raise TypeError(
            f"folders must be a path or a list of paths, got {kind(folders)}."
        )
    for folder in folders:
        if not isinstance(folder, PATHS):
            raise TypeError(f"folders must have only paths, got {kind(folder)}.")
    names = [os.fspath(folder).rstrip("/") or "/" for folder in folders]
    if not names:
        raise ValueError("folders must have at least one folder, got none.")
    return names


def _copies(shards: Sequence[Shard], cache_dir: Path | None) -> FilePaths:
    """Return the path of each shard's decompressed copy, or "" if it needs none."""
    folder = None if cache_dir is None else os.fspath(cache_dir)
    copies = [
        unpacked_path(folder, shard.file, shard.version) if shard.codec else ""
        for shard in shards
    ]
    warn_if_full(
        (copy, shard.bytes) for copy, shard in zip(copies, shards, strict=True) if copy
    )
    return FilePaths(copies)


def _digests(
    shards: Sequence[Shard], algorithm: str | None
) -> tuple[str, list[str]] | None:
    if algorithm is None:
        return None
    return algorithm, [digest_of(shard, algorithm) for shard in shards]
