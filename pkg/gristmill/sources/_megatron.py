"""Implementation of sources.MegatronDataSource: data sets that Megatron tokenized."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._record_files import FAR_THREADS, find_file, in_threads
from gristmill.sources._record_source import RecordSource
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._urls import is_local

__all__ = ["MegatronDataSource"]

Path = str | os.PathLike[str]
# The dtype of tokens by its code in an index.
DTYPES: dict[int, type[np.number[Any]]] = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    6: np.float64,
    7: np.float32,
    8: np.uint16,
}


class MegatronDataSource(RecordSource[npt.NDArray[np.number[Any]]]):
    r"""Serve sequences or documents of data sets that Megatron tokenized, by number.

    Each data set consists of ``PREFIX.bin``, the tokens, and ``PREFIX.idx``, the place
    of each sequence.  Opening takes the same time for any number of sequences: a local
    ``.idx`` file is mapped, and all processes share its pages.

    Args:
        prefixes: A prefix or a list of prefixes, at least one: the path of the two
            files without ``.bin`` and ``.idx``.  It may be a URL that fsspec supports.
            The data sets follow each other, and must have the same dtype.
        unit: A record is a "sequence", as in Megatron's `IndexedDataset`, or a whole
            "document" of one or more sequences.
        access: How tokens are read: "pread", or "mmap", which is faster for files in
            the page cache, but ends the process if a file is truncated while it is
            read.  A local ``.idx`` file is always mapped.
        storage_options: Arguments of the file system of URLs, such as credentials.
        remote_options: How remote files are read.  None for the defaults.

    Record ``i`` is a read-only array of shape ``(n,)``, in the dtype of the files.

    Raises:
        ValueError: The list is empty, or an option is unknown; or data sets have
            different dtypes.
        OSError: A file cannot be opened or does not exist.
        CorruptRecord: A file is not one of Megatron, or is truncated or damaged.

    Example:
        >>> import pathlib, struct, tempfile
        >>> prefix = pathlib.Path(tempfile.mkdtemp(), "train")
        >>> np.array([5, 6, 7], np.uint16).tofile(f"{prefix}.bin")
        >>> head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
        >>> index = head + struct.pack("<2i2q3q", 2, 1, 0, 4, 0, 1, 2)
        >>> _ = pathlib.Path(f"{prefix}.idx").write_bytes(index)
        >>> MegatronDataSource(prefix)[0]
        array([5, 6], dtype=uint16)
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.
    _class_name = "MegatronDataSource"

    def __init__(
        self,
        prefixes: Path | Sequence[Path],
        *,
        unit: str = "sequence",
        access: str = "pread",
        storage_options: Mapping[str, Any] | None = None,
        remote_options: RemoteOptions | None = None,
    ) -> None:
        if unit not in ("sequence", "document"):
            raise ValueError(f"unit must be 'sequence' or 'document', got {unit!r}.")
        if isinstance(prefixes, (str, os.PathLike)):
            prefixes = [prefixes]
        names = FilePaths([os.fspath(prefix) for prefix in prefixes])
        if not len(names):
            raise ValueError("prefixes must have at least one prefix, got none.")
        opener = Opener(names, unit, access, storage_options, remote_options)
        indices = in_threads(opener.index, range(len(names)), FAR_THREADS)
        self._dtype = np.dtype(DTYPES[indices[0].dtype_code])
        for name, index in zip(names, indices, strict=True):
            if index.dtype_code != indices[0].dtype_code:
                raise ValueError(
                    "prefixes must have the same dtype, got"
                    f" {self._dtype} for {names[0]} and"
                    f" {np.dtype(DTYPES[index.dtype_code])} for {name}."
                )
        self._modes = b"".join(index.modes for index in indices)
        super().__init__(names, [(0, len(index)) for index in indices], opener, {})

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tokens."""
        return self._dtype

    @property
    def modes(self) -> npt.NDArray[np.int8] | None:
        """The mode of each sequence, int8 of shape ``(n,)``.

        None if the data sets are not multimodal.
        """
        return np.frombuffer(self._modes, np.int8) if self._modes else None

    def _to_element(self, key: int, record: bytes) -> npt.NDArray[np.number[Any]]:
        return np.frombuffer(record, self._dtype)


@dataclasses.dataclass(frozen=True)
class Opener:
    """Opens the data sets of a source by number."""

    prefixes: FilePaths
    unit: str
    access: str
    storage_options: Mapping[str, Any] | None
    remote_options: RemoteOptions | None

    def __call__(self, part: int) -> _core.SpanFile:
        file = self._find(part, ".bin", self.access)
        return _core.open_megatron_file(file, self.access, self.index(part), self.unit)

    def index(self, part: int) -> _core.MegatronIndex:
        """Return the index of a data set."""
        access = "mmap" if is_local(self.prefixes[part]) else self.access
        file = self._find(part, ".idx", access)
        return _core.MegatronIndex(file, access, self.unit == "document")

    def _find(self, part: int, suffix: str, access: str) -> Any:
        path = self.prefixes[part] + suffix
        return find_file(path, access, self.storage_options, self.remote_options)
