"""Implementation of sources.TokenArrayDataSource: documents of token arrays."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.argument_checks import check_integer
from gristmill.errors import CorruptRecord
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._record_files import expand, find_file
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._sidecars import sidecar_paths, warn_if_not_saved
from gristmill.sources._tf_record import open_all
from gristmill.sources._token_source import TokenSource
from gristmill.transforms._npy_header import (
    MAGIC,
    MAX_HEADER_BYTES,
    find_data_start,
    parse_header,
)

if TYPE_CHECKING:
    from gristmill.sources._remote import RemoteFile

__all__ = ["TokenArrayDataSource"]

Path = str | os.PathLike[str]


class TokenArrayDataSource(TokenSource):
    """Serve the documents in files of token ids by number, in the order of the files.

    Such a file is one array of token ids, as OLMo-core writes it (named ``.npy``, but
    without a header), or as `numpy.save` does.  Documents are found by the token that
    ends them, in one pass over the file, the first time that it is opened.  The
    resulting index is saved as ``.NAME.gristmill-index`` next to the file.  If that
    folder is not writable, it is saved in the folder of the environment variable
    ``GRISTMILL_CACHE_DIR`` (by default ``~/.cache/gristmill``), or in shared memory.
    The index is rebuilt if the file's size or modification time changes.  Indexing a
    remote file reads all of it.

    Args:
        paths: A path or a list of paths, at least one.  A path may be a URL that fsspec
            supports, such as ``gs://bucket/path``.  If there is no such file, the path
            may be a pattern (``"part-*.npy"``, in the order of names).
        dtype: The dtype of the token ids, such as ``np.uint16``.
        eos_id: The token that ends each document.
        bos_id: If not None, a document ends only if this token follows `eos_id`, or
            at the end of the file.
        access: How files are read: "pread", or "mmap", which is faster for files in the
            page cache, but ends the process if a file is truncated while it is read.
        index_dir: The folder for the indices, created if it is missing.  None for the
            places named above.
        storage_options: Arguments of the file system of URLs, such as credentials.
        remote_options: How remote files are read.  None for the defaults.

    Record ``i`` is a read-only array of shape ``(n,)``, and includes `eos_id`.  Tokens
    after the last `eos_id` of a file are a document of their own; OLMo-core drops them.
    With ``access="mmap"``, it is a view of the file, which stays mapped as long as the
    view exists.

    Raises:
        TypeError: `eos_id` or `bos_id` is not an int.
        ValueError: The list of paths is empty, an option is unknown, `dtype` is not an
            unsigned integer dtype, or cannot contain an id.
        OSError: A file cannot be opened or does not exist.
        CorruptRecord: The size of a file is not a multiple of that of a token, its
            header has another dtype, or it changes while it is indexed.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "part-0.npy")
        >>> np.array([5, 6, 0, 7, 0], np.uint16).tofile(path)
        >>> TokenArrayDataSource(path, np.uint16, eos_id=0)[1]
        array([7, 0], dtype=uint16)
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.
    _class_name = "TokenArrayDataSource"

    def __init__(
        self,
        paths: Path | Sequence[Path],
        dtype: npt.DTypeLike,
        eos_id: int,
        *,
        bos_id: int | None = None,
        access: str = "pread",
        index_dir: Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
        remote_options: RemoteOptions | None = None,
    ) -> None:
        tokens = np.dtype(dtype)
        if tokens.kind != "u" or not tokens.isnative:
            raise ValueError(
                f"dtype must be one of uint8, uint16, uint32 and uint64, got {tokens}."
            )
        _check_id("eos_id", eos_id, tokens)
        if bos_id is not None:
            _check_id("bos_id", bos_id, tokens)
        names = FilePaths(expand(paths, storage_options))
        folder = None if index_dir is None else os.fspath(index_dir)
        opener = Opener(
            names,
            tokens,
            int(eos_id),
            None if bos_id is None else int(bos_id),
            access,
            folder,
            storage_options,
            remote_options,
        )
        files = dict(enumerate(open_all(opener, names, "files of tokens, once")))
        ranges = [(0, len(file)) for file in files.values()]
        super().__init__(names, ranges, opener, files, tokens)
        self._index_dir = folder


@dataclasses.dataclass(frozen=True)
class Opener:
    """Opens the files of a source by number."""

    paths: FilePaths
    dtype: np.dtype[Any]
    eos_id: int
    bos_id: int | None
    access: str
    index_dir: str | None
    storage_options: Mapping[str, Any] | None
    remote_options: RemoteOptions | None

    def __call__(
        self, part: int, progress: _core.ScanProgress | None = None
    ) -> _core.SpanFile:
        path = self.paths[part]
        found = find_file(path, self.access, self.storage_options, self.remote_options)
        file = _core.open_token_file(
            found,
            self.access,
            _find_begin(found, self.dtype),
            self.dtype.itemsize,
            self.eos_id,
            self.bos_id,
            sidecar_paths(path, "tokens", self.index_dir),
            progress or _core.ScanProgress(),
        )
        warn_if_not_saved(file)
        return file


def _find_begin(file: str | RemoteFile, dtype: np.dtype[Any]) -> int:
    """Return the offset of the first token: 0, or the end of NumPy's header.

    Raises:
        CorruptRecord: The header is damaged, or has another dtype, shape or size.
    """
    # The header begins after at most 12 bytes.
    path, size, head = _read_head(file, MAX_HEADER_BYTES + 12)
    if not head.startswith(MAGIC):
        return 0
    try:
        begin = find_data_start(memoryview(head))
        layout = parse_header(head[:begin])
    except CorruptRecord as error:
        raise CorruptRecord(f"{path}: {error}") from None
    if layout.dtype != dtype or len(layout.shape) != 1:
        raise CorruptRecord(
            f"{path}: the file must have an array of {dtype} with 1 axis, got"
            f" {layout.dtype} of shape {layout.shape}."
        )
    if size != begin + layout.size:
        raise CorruptRecord(
            f"{path}: the file must have {begin + layout.size} bytes by its header, got"
            f" {size}. It was cut off or written over."
        )
    return begin


def _read_head(file: str | RemoteFile, count: int) -> tuple[str, int, bytes]:
    """Return a file's path, its size, and up to `count` bytes of its beginning."""
    if not isinstance(file, str):
        return file.path, file.size, file.read_range(0, min(count, file.size))
    with open(file, "rb") as opened:
        return file, os.fstat(opened.fileno()).st_size, opened.read(count)


def _check_id(name: str, value: Any, dtype: np.dtype[Any]) -> None:
    check_integer(name, value)
    if not 0 <= value <= np.iinfo(dtype).max:
        raise ValueError(
            f"{name} must be from 0 to {np.iinfo(dtype).max}, the largest {dtype}, got"
            f" {value}."
        )
