"""Implementation of sources.MegatronDataSource: data sets that Megatron tokenized."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.argument_checks import kind
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._record_files import FAR_THREADS, find_file, in_threads
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._token_source import TokenSource
from gristmill.sources._urls import is_local

__all__ = ["MegatronDataSource"]

Path = str | os.PathLike[str]
PATHS = (str, os.PathLike)
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


class MegatronDataSource(TokenSource):
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
    With ``access="mmap"``, it is a view of the file, which stays mapped as long as the
    view exists.

    Raises:
        TypeError: A prefix is not a path.
        ValueError: The list is empty, or an option is unknown; or data sets have
            different dtypes, or only some of them have modes.
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
        if isinstance(prefixes, PATHS):
            prefixes = [prefixes]
        for prefix in prefixes:
            if not isinstance(prefix, PATHS):
                raise TypeError(f"prefixes must have only paths, got {kind(prefix)}.")
        names = FilePaths([os.fspath(prefix) for prefix in prefixes])
        if not len(names):
            raise ValueError("prefixes must have at least one prefix, got none.")
        opener = Opener(names, unit, access, storage_options, remote_options)
        opened = in_threads(opener.open, range(len(names)), FAR_THREADS)
        indices = [index for index, _ in opened]
        dtype = _common_dtype(names, indices)
        _check_modes(names, indices)
        ranges = [(0, len(index)) for index in indices]
        files = {part: file for part, (_, file) in enumerate(opened)}
        super().__init__(names, ranges, opener, files, dtype)
        self._data_sets = opener

    def modes(self) -> npt.NDArray[np.int8] | None:
        """Read the mode of each sequence from the ``.idx`` files.

        Returns:
            int8 of shape ``(n,)``, one for each sequence, also if a record is a
            document.  None if the data sets are not multimodal.
        """
        parts = range(len(self._paths))
        modes = b"".join(self._data_sets.open_index(part).modes for part in parts)
        return np.frombuffer(modes, np.int8) if modes else None


@dataclasses.dataclass(frozen=True)
class Opener:
    """Opens the data sets of a source by number."""

    prefixes: FilePaths
    unit: str
    access: str
    storage_options: Mapping[str, Any] | None
    remote_options: RemoteOptions | None

    def __call__(self, part: int) -> _core.SpanFile:
        """Return the reader of a data set, for a `RecordSet` that has closed it."""
        return self.open(part)[1]

    def open(self, part: int) -> tuple[_core.MegatronIndex, _core.SpanFile]:
        """Return the index and the reader of a data set."""
        file = self._find(part, ".bin", self.access)
        index = self.open_index(part)
        return index, _core.open_megatron_file(file, self.access, index, self.unit)

    def open_index(self, part: int) -> _core.MegatronIndex:
        """Return the index of a data set."""
        access = "mmap" if is_local(self.prefixes[part]) else self.access
        file = self._find(part, ".idx", access)
        return _core.MegatronIndex(file, access, self.unit == "document")

    def _find(self, part: int, suffix: str, access: str) -> Any:
        path = self.prefixes[part] + suffix
        return find_file(path, access, self.storage_options, self.remote_options)


def _common_dtype(
    names: Sequence[str], indices: Sequence[_core.MegatronIndex]
) -> np.dtype[Any]:
    """Return the dtype of all data sets; raise ValueError if they differ."""
    dtypes = [np.dtype(DTYPES[index.dtype_code]) for index in indices]
    for name, dtype in zip(names, dtypes, strict=True):
        if dtype != dtypes[0]:
            raise ValueError(
                f"prefixes must have the same dtype, got {dtypes[0]} for {names[0]} and"
                f" {dtype} for {name}."
            )
    return dtypes[0]


def _check_modes(names: Sequence[str], indices: Sequence[_core.MegatronIndex]) -> None:
    """Raise ValueError if only some data sets are multimodal."""
    by_kind: dict[bool, str] = {}
    for name, index in zip(names, indices, strict=True):
        if len(index):  # A data set without sequences has no modes either.
            by_kind.setdefault(bool(index.modes), name)
    if len(by_kind) > 1:
        raise ValueError(
            f"prefixes must all be multimodal or none, got modes in {by_kind[True]} and"
            f" none in {by_kind[False]}."
        )
