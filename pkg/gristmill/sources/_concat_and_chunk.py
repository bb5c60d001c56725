"""Implementation of sources.ConcatAndChunkDataSource: rows in the documents' order."""

from __future__ import annotations

import os
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.argument_checks import check_flag, check_integer
from gristmill._base.types import Int64Array
from gristmill.sources._row_source import Documents, Lengths, RowSource

__all__ = ["ConcatAndChunkDataSource"]

Tokens = npt.NDArray[np.number[Any]]


class ConcatAndChunkDataSource(RowSource[Tokens]):
    """Cut the tokens of all documents, one after the other, into rows.

    This is what ``source.concat_and_chunk(sequence_length)`` returns.  The rows are the
    instances of OLMo-core's `NumpyFSLDataset`.

    Args:
        source: The documents.
        sequence_length: Tokens of a row.
        max_sequence_length: A multiple of `sequence_length`: the order of tokens is
            the same for all row lengths that have the same maximum.  None for
            `sequence_length`.
        per_file: Whether a row never has tokens of two files.  The rest of each file
            that does not fill a row of `max_sequence_length` is dropped, as in
            OLMo-core.  If False, only the rest after the last document is dropped.
        index_dir: The folder for the index, created if it is missing.  None for the
            folder of the first file, or if that is not writable, for that of the
            environment variable ``GRISTMILL_CACHE_DIR``.

    Record ``k`` is an array of shape ``(sequence_length,)`` in the dtype of the source.
    Only its bytes are read.  The index takes 8 bytes for each row, in a file that all
    processes map; one of less than 1 MiB is not saved.

    Raises:
        TypeError: An argument has another type.
        ValueError: A length is less than 1, or `max_sequence_length` is not a multiple
            of `sequence_length`.
        OSError: A file cannot be opened.
        CorruptRecord: An index of the source is damaged.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "part-0.npy")
        >>> np.array([5, 6, 0, 7, 0], np.uint16).tofile(path)
        >>> documents = gristmill.sources.TokenArrayDataSource(path, "uint16", eos_id=0)
        >>> list(gristmill.sources.ConcatAndChunkDataSource(documents, 2))
        [array([5, 6], dtype=uint16), array([0, 7], dtype=uint16)]
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.

    def __init__(
        self,
        source: Documents,
        sequence_length: SupportsIndex,
        *,
        max_sequence_length: int | None = None,
        per_file: bool = True,
        index_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(source, sequence_length, index_dir)
        check_flag("per_file", per_file)
        if max_sequence_length is None:
            max_sequence_length = self._sequence_length
        check_integer("max_sequence_length", max_sequence_length)
        if (
            max_sequence_length < self._sequence_length
            or max_sequence_length % self._sequence_length
        ):
            raise ValueError(
                "max_sequence_length must be a multiple of sequence_length, got"
                f" {max_sequence_length} and {self._sequence_length}."
            )
        self._max_sequence_length = int(max_sequence_length)
        self._per_file = bool(per_file)
        self._open()

    def _arguments(self) -> dict[str, Any]:
        return super()._arguments() | {
            "max_sequence_length": self._max_sequence_length,
            "per_file": self._per_file,
        }

    def _open_rows(self, lengths: Lengths) -> tuple[int, _core.TokenRows]:
        per_file = self._source.records_per_file()
        documents = per_file if self._per_file else [len(lengths)]
        ends = np.cumsum(documents)
        parts = [
            self._summarize(lengths[end - count : end])
            for end, count in zip(ends.tolist(), documents, strict=True)
        ]
        rows_of_unit = self._max_sequence_length // self._sequence_length
        rows = [
            tokens // self._max_sequence_length * rows_of_unit for tokens, _, _ in parts
        ]
        longest = max((longest for _, longest, _ in parts), default=0)
        hashes = [summary for _, _, summary in parts]
        index_bytes = 8 * sum(rows)
        place = self._place(
            (str(lengths.dtype), self._sequence_length, documents, rows, hashes),
            index_bytes,
        )
        found = _core.TokenRows.chunked(
            lengths, longest, self._sequence_length, documents, rows, place
        )
        self._warn_if_not_saved(found, index_bytes)
        return place.key, found

    def _read(self, keys: Int64Array) -> list[Tokens]:
        return list(self._texts(keys, self._sequence_length, self._source.dtype))
