"""Base class of the sources of token ids."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.types import Int64Array
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._record_source import RecordSource
from gristmill.sources._sidecars import MIN_SAVED_BYTES, sidecar_paths

if TYPE_CHECKING:
    from gristmill.sources._concat_and_chunk import ConcatAndChunkDataSource

Tokens = npt.NDArray[np.number[Any]]
LENGTH_BYTES = 4
INT64_MAX = np.iinfo(np.int64).max
Numbers = Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]


class TokenSource(RecordSource[Tokens]):
    """Serve arrays of token ids, as a whole or in parts.

    If files are mapped, the arrays are views of them.  A view keeps its file mapped
    after the source is closed.
    """

    _dtype: np.dtype[Any]
    _index_dir: str | None = None  # The folder for indices, if the user set one.

    def __init__(
        self,
        paths: FilePaths,
        ranges: Sequence[tuple[int, int]],
        open_part: Callable[[int], _core.SpanFile],
        open_readers: Mapping[int, _core.SpanFile],
        dtype: np.dtype[Any],
    ) -> None:
        self._dtype = dtype
        super().__init__(paths, ranges, open_part, open_readers)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tokens."""
        return self._dtype

    def lengths(self) -> npt.NDArray[np.integer[Any]]:
        """Return the number of tokens of each record, without reading any.

        Returns:
            A read-only array of shape ``(n,)``, int32, or int64 if a record has 2**31
            tokens or more.  It is a view of a file that all processes share, unless it
            is small or the file cannot be saved; its numbers may be unaligned.

        Raises:
            OSError: A file cannot be opened.
            CorruptRecord: An index lists a record outside of its file.
        """
        # A file that was opened again may have more records than at first.
        counts = self.records_per_file()
        item_bytes = self._dtype.itemsize
        return self._reader.lengths(counts, item_bytes, self._lengths_paths())

    def _lengths_paths(self) -> list[str]:
        """Return the paths that the lengths of records may have."""
        if LENGTH_BYTES * len(self) < MIN_SAVED_BYTES:
            return []
        import hashlib  # Slow to import.

        text = "\n".join(self.paths)
        digest = hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest()[:16]
        name = f"{self.paths[0]}.{digest}"
        return sidecar_paths(name, "lengths", self._index_dir)

    def read_spans(
        self, record_keys: Numbers, begins: Numbers, ends: Numbers
    ) -> list[Tokens]:
        """Return parts of records; only their bytes are read.

        Args:
            record_keys: Record keys in [0, len), shape (k,).  A key may occur again.
            begins: The first token of each part, shape (k,).
            ends: The token after the last one of each part, shape (k,).

        Returns:
            k read-only arrays: tokens [begin, end) of each record.

        Raises:
            TypeError: A number is not an integer.
            ValueError: A key is out of range, or the numbers of items differ.
            IndexError: A part is not in its record.
            OSError: A file cannot be read.
            CorruptRecord: A file is truncated, or its index is damaged.
        """
        keys = self._check_keys(record_keys)
        first, last = (_as_int64(numbers) for numbers in (begins, ends))
        if not len(keys) == len(first) == len(last):
            raise ValueError(
                "record_keys, begins and ends must have the same number of items, got"
                f" {len(keys)}, {len(first)} and {len(last)}."
            )
        return self._reader.read_slices(keys, first, last, self._dtype.itemsize)

    def records_per_file(self) -> list[int]:
        """Return the number of records of each file.

        Returns:
            One number for each of `paths`.
        """
        return [int(count) for _, count in self._ranges]

    def concat_and_chunk(
        self,
        sequence_length: int,
        *,
        max_sequence_length: int | None = None,
        per_file: bool = True,
        index_dir: str | os.PathLike[str] | None = None,
    ) -> ConcatAndChunkDataSource:
        """Cut the tokens of all records, one after the other, into rows.

        Args:
            sequence_length: Tokens of a row.
            max_sequence_length: See `ConcatAndChunkDataSource`, as for the others.
            per_file: Whether the rest of each file is dropped.
            index_dir: The folder for the index of the rows.

        Returns:
            A source whose record ``k`` is an array of shape ``(sequence_length,)``.

        Raises:
            TypeError: An argument has another type.
            ValueError: A length is less than 1, or `max_sequence_length` is not a
                multiple of `sequence_length`.
        """
        from gristmill.sources._concat_and_chunk import ConcatAndChunkDataSource

        return ConcatAndChunkDataSource(
            self,
            sequence_length,
            max_sequence_length=max_sequence_length,
            per_file=per_file,
            index_dir=index_dir,
        )


def _as_int64(numbers: Numbers) -> Int64Array:
    if isinstance(numbers, np.ndarray) and numbers.dtype.kind in "iu":
        return np.ascontiguousarray(numbers, np.int64)
    return np.array([_clamp(operator.index(number)) for number in numbers], np.int64)


def _clamp(number: int) -> int:
    # A number beyond int64 is not in any record.
    return max(-1, min(number, INT64_MAX))
