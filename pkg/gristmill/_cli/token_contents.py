"""Examines the contents of files of tokens."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill import _core, errors, sources
from gristmill._base.progress_bar import Progress
from gristmill._cli.contents import Contents, Damage, sizes_of
from gristmill._cli.token_sets import TokenSet
from gristmill._convert.errors import ConversionError, MissingPackageError
from gristmill._convert.inputs import reading
from gristmill._convert.paths import stat_regular
from gristmill._convert.token_pieces import TokenizerFile
from gristmill.sources._token_source import TokenSource
from gristmill.transforms._npy_header import MAGIC

Ids = npt.NDArray[Any]
FORMATS = {
    "megatron": "Megatron",
    "npy": "array of tokens",
    "arrayrecord": "ArrayRecord of tokens",
}


@dataclasses.dataclass(frozen=True)
class Document:
    """A document to show.  JSON output has fields of these names, and "tokens".

    Attributes:
        ids: Its tokens.
        text: The text that they stand for; None without a tokenizer.
    """

    ids: list[int]
    text: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenContents(Contents):
    """The contents of files of tokens.  A record is a document.

    Attributes:
        tokens: The number of tokens.
        files: The number of files of tokens.
        documents: The first documents, instead of `head`.
    """

    tokens: int
    files: int
    documents: list[Document]


@dataclasses.dataclass(frozen=True)
class TokenOptions:
    """The options of `inspect` for tokens.

    Attributes:
        dtype: The dtype of the tokens; None for that of the file or its manifest.
        eos: The last token of each document, by its text or id; None for that of the
            manifest.
        tokenizer: The path of a tokenizer.json; None to show ids.
    """

    dtype: str | None
    eos: str | None
    tokenizer: str | None


def examine_tokens(
    found: TokenSet, options: TokenOptions, head: int, verify: bool, progress: Progress
) -> TokenContents:
    """Examine the contents of files of tokens.

    Args:
        found: The files.
        options: The options of the user.
        head: The number of leading documents to return.
        verify: Whether to compare each file with the manifest.
        progress: Receives the number of files compared.

    Raises:
        CommandError: A file cannot be opened or is damaged, or its dtype, the last
            token of documents or their checksums are not known.
    """
    tokenizer = None if options.tokenizer is None else TokenizerFile(options.tokenizer)
    with reading(found.path):
        size = sum(
            stat_regular(path).st_size for path in (*found.files, *found.indices)
        )
        damaged = _compare(found, progress) if verify else []
        details: dict[str, str] = {}
        try:
            read, lengths = _open(found, options, tokenizer, details)
        except errors.CorruptRecord:
            raise  # Its text has the path.
        except ValueError as error:
            raise ConversionError(f"{found.path}: {error}") from error
        documents = [read(number) for number in range(min(head, len(lengths)))]
        if tokenizer is not None and found.manifest is not None:
            is_same = tokenizer.sha256 == found.manifest["tokenizer_sha256"]
            details["tokenizer"] = tokenizer.path + (
                "" if is_same else ", which is not the one that encoded the documents"
            )
        return TokenContents(
            path=found.path,
            format=FORMATS[found.format],
            file_bytes=size,
            records=len(lengths),
            details=details,
            sizes=sizes_of(lengths, len(lengths)),
            verified=verify,
            damaged=damaged,
            tokens=int(lengths.sum(dtype=np.int64)),
            files=len(found.files),
            documents=_describe(documents, tokenizer),
        )


def _open(
    found: TokenSet,
    options: TokenOptions,
    tokenizer: TokenizerFile | None,
    details: dict[str, str],
) -> tuple[Callable[[int], Ids], npt.NDArray[np.integer[Any]]]:
    """Return a function that reads a document, and the lengths of all.

    Adds texts about the files to `details`.
    """
    if found.format != "npy" and options.eos is not None:
        raise ConversionError(
            f"{found.path}: --eos needs an array of tokens, found"
            f" {FORMATS[found.format]}, which contains the ends of documents. Leave it"
            " out."
        )
    if found.format == "megatron":
        prefixes = [os.path.splitext(path)[0] for path in found.files]
        source: TokenSource = sources.MegatronDataSource(prefixes, unit="document")
        details["dtype"] = str(source.dtype)
        if options.dtype not in (None, details["dtype"]):
            raise ConversionError(
                f"{found.path}: --dtype is {options.dtype}, but the index has"
                f" {source.dtype}. Leave it out."
            )
        sequences = len(sources.MegatronDataSource(prefixes))
        if sequences != len(source):
            details["sequences"] = f"{sequences:,}"
        return source.__getitem__, source.lengths()
    dtype = options.dtype or found.dtype or _dtype_of_header(found.files[0])
    if dtype is None:
        missing = "--dtype, such as --dtype uint16"
        if found.format == "npy" and options.eos is None:
            missing += ", and --eos, the id of the token that ends each document"
        raise ConversionError(
            f"{found.path}: this file has no header that names the dtype of its tokens."
            f" Pass {missing}."
        )
    details["dtype"] = dtype
    if found.format == "arrayrecord":
        return _open_records(found, np.dtype(dtype))
    eos_id = found.eos_id
    if options.eos is not None:
        eos_id = _parse_eos(options.eos, tokenizer)
    if eos_id is None:
        raise ConversionError(
            f"{found.path}: an array does not contain the ends of documents. Pass"
            " --eos, the id of the token that ends each document."
        )
    details["eos"] = str(eos_id)
    source = sources.TokenArrayDataSource(found.files, dtype, eos_id)
    return source.__getitem__, source.lengths()


def _open_records(
    found: TokenSet, dtype: np.dtype[Any]
) -> tuple[Callable[[int], Ids], npt.NDArray[np.integer[Any]]]:
    source = sources.ArrayRecordDataSource(found.files)
    parts = []
    for path in found.files:
        file = _core.RecordFile(path)
        parts.append(file.sizes(np.arange(len(file))))
    sizes = np.concatenate(parts)
    odd = np.flatnonzero(sizes % dtype.itemsize)
    if len(odd):
        raise ConversionError(
            f"{found.path}: record {odd[0]} has {sizes[odd[0]]} bytes, which is not a"
            f" whole number of {dtype} tokens. Pass another --dtype."
        )
    return lambda number: np.frombuffer(source[number], dtype), sizes // dtype.itemsize


def _dtype_of_header(path: str) -> str | None:
    """Return the dtype in the header of a NumPy file; None if it has no header."""
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return None
    return str(np.load(path, mmap_mode="r").dtype)


def _parse_eos(text: str, tokenizer: TokenizerFile | None) -> int:
    if tokenizer is not None:
        return tokenizer.id_of(text)
    if text.isascii() and text.isdecimal():
        return int(text)
    raise ConversionError(
        f"--eos must be an id, such as 0, got {text!r}. To pass the text of a token,"
        " also pass --tokenizer."
    )


def _compare(found: TokenSet, progress: Progress) -> list[Damage]:
    """Return the files that are not those of the manifest."""
    if found.manifest is None:
        raise ConversionError(
            f"{found.path}: --verify needs checksums, which only the manifest of"
            " gristmill tokenize has, found none. Leave --verify out."
        )
    damaged = []
    progress.begin("files verified", len(found.sha256))
    for path, sha256 in found.sha256.items():
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                text = f"{path}: this file is not the one of the manifest."
                damaged.append(Damage(0, 0, text))
        progress.advance(1)
    return damaged


def _describe(
    documents: Sequence[Ids], tokenizer: TokenizerFile | None
) -> list[Document]:
    """Return documents to show, with their texts if there is a tokenizer."""
    ids = [document.tolist() for document in documents]
    if tokenizer is None:
        return [Document(each, None) for each in ids]
    largest = max((max(each, default=0) for each in ids), default=0)
    smallest = min((min(each, default=0) for each in ids), default=0)
    if smallest < 0 or largest > tokenizer.largest_id:
        odd = smallest if smallest < 0 else largest
        raise ConversionError(
            f"{tokenizer.path}: this tokenizer has ids from 0 to"
            f" {tokenizer.largest_id}, found {odd} in the documents. Pass the"
            " tokenizer that encoded them."
        )
    try:
        import tokenizers
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "--tokenizer needs the tokenizers package. Install it with: pip install"
            " tokenizers"
        ) from error
    library = tokenizers.Tokenizer.from_file(tokenizer.path)
    texts = library.decode_batch(ids, skip_special_tokens=False)
    return [Document(*pair) for pair in zip(ids, texts, strict=True)]
