"""Writes the shards of a tokenization from its pieces."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gristmill._convert.errors import ConversionError, from_os_error
from gristmill._convert.hashed_file import HashedFile, check_sha256
from gristmill._convert.paths import SUFFIXES
from gristmill._convert.shards import RecordWriter, flush_to_disk, writer_options
from gristmill._convert.token_pieces import LENGTH_DTYPE, WrittenPiece, lengths_path
from gristmill.sources._megatron import DTYPES

# The number of bytes of a piece to copy at once.
COPY_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True)
class WrittenShard:
    """The verified files of a finished shard; the journal stores these fields.

    Attributes:
        file_bytes: The size of the file with the tokens.
        sha256: Its SHA-256, in hex.
        index_bytes: The size of the index next to it; 0 if the format has none.
        index_sha256: The SHA-256 of the index, in hex; empty if there is none.
    """

    file_bytes: int
    sha256: str
    index_bytes: int = 0
    index_sha256: str = ""


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The pieces of a shard, in order.

    Attributes:
        paths: The file of tokens of each piece.
        written: The contents of each piece.
        dtype: The name of the dtype of the tokens.
    """

    paths: Sequence[str]
    written: Sequence[WrittenPiece]
    dtype: str

    @property
    def documents(self) -> int:
        """The number of documents."""
        return sum(piece.documents for piece in self.written)

    def files(self) -> list[str]:
        """Return the paths of all files."""
        return [*self.paths, *map(lengths_path, self.paths)]

    def tokens(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the tokens of each piece.

        Raises:
            ConversionError: A piece is not what was written.
        """
        for path, piece in zip(self.paths, self.written, strict=True):
            yield _read(path, np.dtype(self.dtype), piece.sha256)

    def lengths(self) -> Iterator[npt.NDArray[np.int32]]:
        """Yield the lengths of the documents of each piece.

        Raises:
            ConversionError: A piece is not what was written.
        """
        for path, piece in zip(self.paths, self.written, strict=True):
            yield _read(lengths_path(path), LENGTH_DTYPE, piece.lengths_sha256)


def _read(path: str, dtype: np.dtype[Any], sha256: str) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = np.fromfile(path, dtype)
    except OSError as error:
        raise from_os_error(error, path) from error
    if hashlib.sha256(found.data).hexdigest() != sha256:
        raise ConversionError(
            f"{path}: this file is not what was written. Check the disk, and pass"
            " --restart."
        )
    return found


class TokenFormat(abc.ABC):
    """A format of files of tokens.

    Attributes:
        suffixes: The suffixes that the files of tokens may have.
        index_suffix: The suffix of the index next to a file; None if it has none.
        wide_dtype: The dtype of tokens that uint16 cannot contain.
    """

    suffixes: ClassVar[tuple[str, ...]]
    index_suffix: ClassVar[str | None] = None
    wide_dtype: ClassVar[str] = "uint32"

    @abc.abstractmethod
    def write(self, pieces: Pieces, path: str, index_path: str) -> WrittenShard:
        """Write a shard, read it back, and flush it to disk.

        Args:
            pieces: The pieces of the shard.
            path: The file of tokens.
            index_path: The index; used only if the format has one.
        """

    def allows(self, dtype: np.dtype[Any]) -> bool:
        """Return whether the format can have a dtype."""
        return dtype.kind == "u"


class FlatArrays(TokenFormat):
    """Arrays without a header, as OLMo-core writes them."""

    suffixes = (".npy",)

    def write(self, pieces: Pieces, path: str, index_path: str) -> WrittenShard:
        del index_path
        return WrittenShard(*_write_tokens(pieces, path))


class Megatron(TokenFormat):
    """Megatron's pairs of files; each document is one sequence."""

    suffixes = (".bin",)
    index_suffix = ".idx"
    wide_dtype = "int32"

    def write(self, pieces: Pieces, path: str, index_path: str) -> WrittenShard:
        tokens = _write_tokens(pieces, path)
        with HashedFile(index_path) as file:
            dtype = np.dtype(pieces.dtype)
            code = next(code for code, each in DTYPES.items() if each == dtype)
            count = pieces.documents
            file.write(b"MMIDIDX\0\0")
            # The version, the dtype, and the numbers of sequences and of bounds of
            # documents.
            file.write(struct.pack("<QBQQ", 1, code, count, count + 1))
            for lengths in pieces.lengths():
                file.write(lengths)
            begin = 0
            for lengths in pieces.lengths():
                ends = begin + np.cumsum(lengths.astype("<i8") * dtype.itemsize)
                file.write(np.concatenate(([begin], ends[:-1]))[: len(ends)])
                begin = int(ends[-1]) if len(ends) else begin
            for first in range(0, count + 1, COPY_BYTES):
                file.write(np.arange(first, min(first + COPY_BYTES, count + 1)))
            sha256 = file.finish()
        check_sha256(index_path, sha256)
        return WrittenShard(*tokens, file.size, sha256)

    def allows(self, dtype: np.dtype[Any]) -> bool:
        return dtype.kind in "iu" and dtype in DTYPES.values()


class ArrayRecords(TokenFormat):
    """ArrayRecord files; a record is the tokens of a document as bytes."""

    suffixes = SUFFIXES

    def write(self, pieces: Pieces, path: str, index_path: str) -> WrittenShard:
        del index_path
        writer = RecordWriter(path, writer_options(1, "zstd:3"))
        itemsize = np.dtype(pieces.dtype).itemsize
        try:
            for tokens, lengths in zip(pieces.tokens(), pieces.lengths(), strict=True):
                content = tokens.tobytes()
                begin = 0
                for end in (np.cumsum(lengths, dtype=np.int64) * itemsize).tolist():
                    writer.write(content[begin:end])
                    begin = end
            writer.close()
            size = flush_to_disk(path)
        except BaseException:
            writer.discard()
            raise
        with open(path, "rb") as file:
            return WrittenShard(size, hashlib.file_digest(file, "sha256").hexdigest())


def _write_tokens(pieces: Pieces, path: str) -> tuple[int, str]:
    """Write all tokens to one file; return its size and its SHA-256."""
    with HashedFile(path) as file:
        for tokens in pieces.tokens():
            for begin in range(0, len(tokens), COPY_BYTES):
                file.write(tokens[begin : begin + COPY_BYTES])
        sha256 = file.finish()
    check_sha256(path, sha256)
    return file.size, sha256


FORMATS: dict[str, TokenFormat] = {
    "megatron": Megatron(),
    "npy": FlatArrays(),
    "arrayrecord": ArrayRecords(),
}


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """A shard to write: its number, format, pieces and paths."""

    number: int
    format: str
    pieces: Pieces
    path: str
    index_path: str


def write_shard(task: ShardTask) -> Iterator[WrittenShard]:
    """Write a shard, and yield a description of it."""
    token_format = FORMATS[task.format]
    yield token_format.write(task.pieces, task.path, task.index_path)
