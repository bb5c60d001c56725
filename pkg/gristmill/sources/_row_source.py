"""Base class of the sources of rows of fixed length over token sources."""

from __future__ import annotations

import abc
import hashlib
import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, SupportsIndex, runtime_checkable

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base import log
from gristmill._base.argument_checks import check_instance, check_integer
from gristmill._base.object_repr import FileSource, value_text
from gristmill._base.types import Int64Array, T
from gristmill.errors import CorruptRecord
from gristmill.sources._sidecars import MIN_SAVED_BYTES, sidecar_paths
from gristmill.sources._urls import is_local, local_path

MAX_SEQUENCE_LENGTH = 2**48  # Sums of a few fit int64.
ITER_BLOCK = 64  # Rows that `__iter__` reads at once.

Lengths = npt.NDArray[np.integer[Any]]


@runtime_checkable
class Documents(Protocol):
    """The members of a `TokenSource` that rows use."""

    @property
    def paths(self) -> list[str]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def lengths(self) -> Lengths: ...
    def records_per_file(self) -> list[int]: ...
    def read_spans(
        self, record_keys: Int64Array, begins: Int64Array, ends: Int64Array
    ) -> list[npt.NDArray[np.number[Any]]]: ...


class RowSource(FileSource, abc.ABC, Generic[T]):
    """Serve rows of fixed length over a token source, by number.

    Row ``k`` is a pure function of ``k``, the documents' lengths and the arguments.
    The index of rows is loaded from a file, or built and saved, when the source is
    created or first used in another process.
    """

    def __init__(
        self,
        source: Documents,
        sequence_length: SupportsIndex,
        index_dir: str | os.PathLike[str] | None,
    ) -> None:
        expected = "a source of tokens, such as a MegatronDataSource"
        check_instance("source", source, Documents, expected)
        check_integer("sequence_length", sequence_length)
        if not 1 <= operator.index(sequence_length) < MAX_SEQUENCE_LENGTH:
            raise ValueError(
                "sequence_length must be >= 1 and less than 2**48, got"
                f" {sequence_length}."
            )
        self._source = source
        self._sequence_length = operator.index(sequence_length)
        self._index_dir = None if index_dir is None else os.fspath(index_dir)

    def _open(self) -> None:
        """Load or build the index; called at the end of `__init__`."""
        self._rows: _core.TokenRows | None
        self._key, self._rows = self._open_rows(self._source.lengths())
        self._length = self._rows.num_rows

    @abc.abstractmethod
    def _open_rows(self, lengths: Lengths) -> tuple[int, _core.TokenRows]:
        """Return a hash of the rows and their index."""

    @abc.abstractmethod
    def _read(self, keys: Int64Array) -> list[T]:
        """Return the elements of keys in [0, len), at least one."""

    @property
    def rows(self) -> _core.TokenRows:
        """The index of the rows."""
        rows = self._rows
        if rows is None:  # In another process.
            key, rows = self._open_rows(self._source.lengths())
            if key != self._key:
                raise CorruptRecord(
                    f"{self._source.paths[0]}: the lengths of documents changed after"
                    " the sending process read them. Create the source again."
                )
            self._rows = rows
        return rows

    @property
    def source(self) -> Documents:
        """The documents."""
        return self._source

    @property
    def sequence_length(self) -> int:
        """The number of tokens from one row to the next."""
        return self._sequence_length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, record_key: SupportsIndex) -> T:
        return self._read(check_row_keys([record_key], self._length, self))[0]

    def __getitems__(self, record_keys: Sequence[SupportsIndex]) -> list[T]:
        keys = check_row_keys(record_keys, self._length, self)
        return self._read(keys) if len(keys) else []

    def __iter__(self) -> Iterator[T]:
        for first in range(0, self._length, ITER_BLOCK):
            last = min(first + ITER_BLOCK, self._length)
            yield from self._read(np.arange(first, last))

    def _texts(
        self, keys: Int64Array, width: int, dtype: npt.DTypeLike, pad_id: int = 0
    ) -> npt.NDArray[Any]:
        """Return the tokens of rows, (k, width); shorter rows end with `pad_id`."""
        offsets, documents, begins, ends = self.rows.rows(keys)
        spans = self._source.read_spans(documents + self._first_document, begins, ends)
        texts = np.empty((len(keys), width), dtype)
        flat = texts.reshape(-1)
        if int((ends - begins).sum()) == flat.size:
            return np.concatenate(spans, out=flat).reshape(texts.shape)
        texts[:] = pad_id
        for text, first, last in zip(texts, offsets, offsets[1:], strict=False):
            if first < last:
                tokens = np.concatenate(spans[first:last])
                text[: len(tokens)] = tokens
        return texts

    def _summarize(self, lengths: Lengths) -> tuple[int, int, int]:
        """Return the sum, the largest, and a hash of lengths.

        Raises:
            CorruptRecord: A length is negative, or the sum is too large.
        """
        try:
            return _core.summarize_lengths(lengths)
        except ValueError as error:
            raise CorruptRecord(f"{self._source.paths[0]}: {error}") from None

    _first_document = 0  # The number of the first document that rows may contain.

    def _place(self, parts: tuple[Any, ...], index_bytes: int) -> _core.ArrayPlace:
        """Return the place of the index; it depends only on `parts`."""
        text = repr((type(self).__name__, *parts))
        return array_place(text, index_bytes, self._source, self._index_dir)

    def _warn_if_not_saved(self, rows: _core.TokenRows, index_bytes: int) -> None:
        warn_if_not_saved(rows.has_index_file, index_bytes, self._source)

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that determine the elements, apart from the source."""
        return {"sequence_length": self._sequence_length}

    def _text_of(self, source: str) -> str:
        texts = [f"{name}={value_text(v)}" for name, v in self._arguments().items()]
        return f"{type(self).__name__}({', '.join([source, *texts])})"

    def __repr__(self) -> str:
        return self._text_of(repr(self._source))

    def _text_with_paths(self) -> str:
        return self._text_of(str(self._source))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_rows": None}


def array_place(
    text: str, index_bytes: int, source: Documents, index_dir: str | None
) -> _core.ArrayPlace:
    """Return the key of an index and the files that may have it.

    Args:
        text: States everything that the index depends on.
        index_bytes: The size of the index.
        source: The index is kept next to its first file.
        index_dir: If not None, the folder for the index.
    """
    digest = hashlib.sha256(text.encode(), usedforsecurity=False).digest()
    key = int.from_bytes(digest[:8], "little")
    if index_bytes < MIN_SAVED_BYTES:
        return _core.ArrayPlace(key, [], "")
    path = source.paths[0]
    paths = sidecar_paths(f"{path}.{key:016x}", "rows", index_dir)
    return _core.ArrayPlace(key, paths, _data_path(path))


def warn_if_not_saved(has_file: bool, index_bytes: int, source: Documents) -> None:
    """Log a warning if an index should be saved, but is not."""
    if not has_file and index_bytes >= MIN_SAVED_BYTES:
        log.warning(
            "The index of the rows of %s cannot be saved, so each process computes it."
            " Set GRISTMILL_CACHE_DIR, or index_dir=, to a writable folder.",
            source.paths[0],
        )


def check_row_keys(record_keys: Any, length: int, owner: Any) -> Int64Array:
    """Return record keys as int64; raise ValueError if one is not in [0, length)."""
    # As objects, because a number beyond int64 is out of range, too.
    keys = np.array([operator.index(key) for key in record_keys], object)
    bad = keys[(keys < 0) | (keys >= length)]
    if bad.size:
        raise ValueError(
            f"Record key should be in [0, num_records), got {bad[0]} for the {length}"
            f" rows of {owner}"
        )
    return keys.astype(np.int64)


def _data_path(path: str) -> str:
    """Return a local file of the data that can be locked; it may be missing."""
    if not is_local(path):
        return ""
    path = local_path(path)
    # Megatron's paths are prefixes.
    return path if os.path.exists(path) else f"{path}.idx"
