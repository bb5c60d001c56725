"""Tokenizes ranges of documents, and writes each to a temporary piece.

A piece is two files: the tokens of all documents, and the length of each as an int32.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill._convert.errors import (
    ConversionError,
    MissingPackageError,
    UsageError,
    from_os_error,
)
from gristmill._convert.hashed_file import HashedFile
from gristmill._convert.shards import Advance
from gristmill._convert.unit_writer import PlacedRecords
from gristmill.transforms import Tokenize

Ids: TypeAlias = npt.NDArray[np.integer[Any]]
# The number of documents, and about the number of characters, to encode at once. Larger
# blocks are slower, because the results of the library are large.
BLOCK_DOCUMENTS = 64
BLOCK_CHARACTERS = 1 << 14
# The number of text bytes between two progress reports.
REPORT_BYTES = 1 << 20
# The most tokens of a document. Megatron's index stores lengths as int32.
MOST_TOKENS = 2**31 - 1
LENGTH_DTYPE = np.dtype("<i4")


@dataclasses.dataclass(frozen=True)
class WrittenPiece:
    """The contents of a finished piece; the journal stores these fields.

    Attributes:
        documents: The number of documents written.
        dropped_by_input: The number of documents without tokens that were dropped, by
            the number of the input, in decimal.
        tokens: The number of tokens, with those before and after each document.
        text_bytes: The size of all texts in UTF-8.
        sha256: The SHA-256 of the tokens, in hex.
        lengths_sha256: The SHA-256 of the lengths, in hex.
    """

    documents: int
    dropped_by_input: dict[str, int]
    tokens: int
    text_bytes: int
    sha256: str
    lengths_sha256: str

    @property
    def dropped_documents(self) -> int:
        """The number of dropped documents of all inputs."""
        return sum(self.dropped_by_input.values())


class TokenizerFile:
    """The contents of a ``tokenizer.json``.

    Attributes:
        path: The path of the file.
        sha256: The SHA-256 of the file, in hex.
        largest_id: The largest id of a token.

    Raises:
        ConversionError: The file cannot be read, is not a tokenizer, or is one whose
            results are random.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        content = self._read()
        self.sha256 = hashlib.sha256(content).hexdigest()
        try:
            self._ids, self._special, dropout = _parse(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConversionError(
                f"{path}: expected a tokenizer.json of the tokenizers library, found"
                " another file. Pass --tokenizer with such a file."
            ) from error
        if dropout:
            raise ConversionError(
                f"{path}: this tokenizer has a dropout of {dropout}, so that its"
                ' results are random. Set "dropout" to null in a copy of the file.'
            )
        self.largest_id = max(self._ids.values(), default=0)

    def is_unchanged(self) -> bool:
        """Return whether the file still has the same contents.

        Raises:
            ConversionError: The file cannot be read.
        """
        return hashlib.sha256(self._read()).hexdigest() == self.sha256

    def _read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except OSError as error:
            raise from_os_error(error, self.path) from error

    def id_of(self, token: str) -> int:
        """Return the id of a token; a decimal number is an id.

        Raises:
            ConversionError: The tokenizer does not have the token.
        """
        if token.isascii() and token.isdecimal() and int(token) <= self.largest_id:
            return int(token)
        if token not in self._ids:
            raise ConversionError(
                f"{self.path}: this tokenizer has no token {token!r}. Pass a token of"
                f" it, or an id from 0 to {self.largest_id}."
            )
        return self._ids[token]

    def check_ids(self, tokens: Sequence[str], writer: PieceWriter) -> None:
        """Check that a writer's library gives special tokens the ids of `id_of`.

        A library may renumber those whose ids contradict the vocabulary. Other tokens
        are ignored.

        Raises:
            ConversionError: The library has another id.
        """
        for token in self._special.intersection(tokens):
            expected = self.id_of(token)
            ids = writer.open().block_map([token])[0].tolist()
            found = ids[len(writer.prefix) : len(ids) - len(writer.suffix)]
            if expected not in found:
                raise ConversionError(
                    f"{self.path}: this file says that {token!r} has the id {expected},"
                    f" but the library encodes it as {found}. Correct the id in a copy"
                    " of the file."
                )


def _parse(content: Any) -> tuple[dict[str, int], set[str], float]:
    """Return the ids of a ``tokenizer.json``, its special tokens, and its dropout."""
    model = content["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        ids = dict(vocabulary)
    else:  # A Unigram model: pairs of a token and its score.
        ids = {token: number for number, (token, _) in enumerate(vocabulary)}
    special = set()
    for token in content["added_tokens"]:
        ids[token["content"]] = token["id"]
        if token.get("special"):
            special.add(token["content"])
    if not {*map(type, ids.values())} <= {int}:
        raise TypeError("An id is not an int.")
    return ids, special, model.get("dropout") or 0.0


@dataclasses.dataclass(frozen=True)
class PieceWriter:
    """Tokenizes documents, and writes a piece.

    Attributes:
        tokenizer: The path of the ``tokenizer.json``.
        tokenizer_sha256: The SHA-256 of that file, in hex.
        library: The library that encodes the texts: "tokenizers" or "gigatoken".
        prefix: The ids before each document.
        suffix: The ids after each document.
        dtype: The name of the dtype of the tokens.
        eos_id: An id that must be in each document exactly once, because it ends a
            document in the output; None if the output has other marks.
        drop_empty: Whether documents without tokens are dropped; otherwise they are
            errors.
    """

    tokenizer: str
    tokenizer_sha256: str
    library: str
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    dtype: str
    eos_id: int | None
    drop_empty: bool

    def open(self) -> Tokenize:
        """Return the step that encodes texts; a process opens it once.

        Raises:
            ConversionError: The library is not installed, or cannot read the file.
        """
        return _open(self)

    def write(
        self, records: PlacedRecords, path: str
    ) -> Iterator[Advance | WrittenPiece]:
        """Write the tokens of texts to a file, and their lengths to another.

        Args:
            records: The texts.
            path: The file of the tokens; that of the lengths is `lengths_path(path)`.

        Yields:
            An `Advance` from time to time, and at the end a `WrittenPiece`.

        Raises:
            ConversionError: A document has no tokens or too many, or a file cannot be
                written.
        """
        step = self.open()
        dropped: collections.Counter[str] = collections.Counter()
        documents = tokens = text_bytes = reported_bytes = 0
        advance = Advance(0)
        with (
            HashedFile(path) as tokens_file,
            HashedFile(lengths_path(path)) as lengths_file,
        ):
            for position, texts in _blocks(records):
                arrays = self._encode(step, texts, records, position)
                if self.drop_empty:
                    empty = [
                        at for at, each in enumerate(arrays) if self._is_empty(each)
                    ]
                    dropped.update(f"{records.input_of(position + at)}" for at in empty)
                    arrays = [each for each in arrays if not self._is_empty(each)]
                lengths = np.array([len(array) for array in arrays], LENGTH_DTYPE)
                lengths_file.write(lengths)
                if arrays:
                    tokens_file.write(np.concatenate(arrays))
                block_tokens = int(lengths.sum(dtype=np.int64))
                documents += len(arrays)
                tokens += block_tokens
                text_bytes += sum(map(_utf8_size, texts))
                advance = Advance(
                    advance.records + len(texts), advance.tokens + block_tokens
                )
                if text_bytes - reported_bytes > REPORT_BYTES:
                    yield advance
                    advance, reported_bytes = Advance(0), text_bytes
            yield advance
            digests = (tokens_file.finish(), lengths_file.finish())
        yield WrittenPiece(documents, dict(dropped), tokens, text_bytes, *digests)

    def _is_empty(self, ids: Ids) -> bool:
        """Return whether a document has no tokens but `prefix` and `suffix`."""
        return len(ids) == len(self.prefix) + len(self.suffix)

    def _encode(
        self, step: Tokenize, texts: list[str], records: PlacedRecords, first: int
    ) -> list[Ids]:
        """Return the tokens of texts, if they are allowed in the output.

        The first text is record number `first` of the records.
        """
        arrays: list[Ids] = step.block_map(texts)
        for position, array in enumerate(arrays, first):
            if len(array) > MOST_TOKENS:
                raise ConversionError(
                    f"{records.place(position)}: a document must have at most"
                    f" {MOST_TOKENS} tokens, got {len(array)}. Split it."
                )
            if self._is_empty(array) and not self.drop_empty:
                raise ConversionError(
                    f"{records.place(position)}: this document has no tokens. Remove"
                    " it, or pass --drop-empty to drop such documents."
                )
            if self.eos_id is not None:
                count = np.count_nonzero(array == self.eos_id)
                if count != 1:
                    raise ConversionError(
                        f"{records.place(position)}: this text contains the token"
                        f" {self.eos_id}, which only ends documents in this format."
                        " Remove it from the text, or pass --format megatron."
                    )
        return arrays


@functools.lru_cache(maxsize=1)
def _open(writer: PieceWriter) -> Tokenize:
    try:
        return Tokenize(
            writer.tokenizer,
            prefix=writer.prefix,
            suffix=writer.suffix,
            dtype=writer.dtype,
            library=writer.library,
        )
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"this needs the {writer.library} package. Install it with: pip install"
            f" {writer.library}"
        ) from error
    except OSError as error:
        raise from_os_error(error, writer.tokenizer) from error
    except ValueError as error:
        raise UsageError(f"{error}") from error
    except Exception as error:  # The libraries raise bare Exceptions.
        raise ConversionError(f"{writer.tokenizer}: {error}.") from error


def lengths_path(path: str) -> str:
    """Return the path of the lengths of a piece."""
    return path + ".lengths"


def _blocks(records: PlacedRecords) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks of texts, each after the number of its first record."""
    first = characters = 0
    texts: list[str] = []
    for text in records:
        texts.append(text)
        characters += len(text)
        if len(texts) >= BLOCK_DOCUMENTS or characters >= BLOCK_CHARACTERS:
            yield first, texts
            first += len(texts)
            texts, characters = [], 0
    if texts:
        yield first, texts


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
