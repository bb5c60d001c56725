"""Finds the files of tokens that an argument of `inspect` names."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

from gristmill._cli.file_formats import detect_format
from gristmill._convert import finding
from gristmill._convert.errors import ConversionError
from gristmill._convert.inputs import reading
from gristmill._convert.paths import files_below, stat_regular

# The names of the dtypes of tokens.
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
MANIFEST = ".manifest.json"
BIN, IDX = ".bin", ".idx"
# Manifests are smaller, even of many shards.
MAX_MANIFEST_BYTES = 1 << 28


@dataclasses.dataclass(frozen=True)
class TokenSet:
    """Files of tokens that are shown together.

    Attributes:
        path: The name to show.
        format: "megatron", "npy" or "arrayrecord", as `gristmill tokenize` names it.
        files: The files of tokens.
        indices: The indices next to them; only Megatron's format has any.
        dtype: The dtype of the tokens; None if it is not known.
        eos_id: The token that ends each document; None if it is not known.
        manifest: The manifest of `gristmill tokenize`; None if there is none.
        sha256: The SHA-256 of each file, in hex, by its path; from the manifest.
    """

    path: str
    format: str
    files: tuple[str, ...]
    indices: tuple[str, ...] = ()
    dtype: str | None = None
    eos_id: int | None = None
    manifest: dict[str, Any] | None = None
    sha256: dict[str, str] = dataclasses.field(default_factory=dict)


def find_token_set(path: str, dtype: str | None, eos: str | None) -> TokenSet | None:
    """Return the files of tokens at a path; None if it names something else.

    Args:
        path: A file, a prefix of Megatron's files, the OUT of `gristmill tokenize`, or
            its manifest.
        dtype: The dtype of the tokens that the user passed.
        eos: The last token of documents that the user passed.

    Raises:
        ConversionError: The files are incomplete, or their dtype or last token is not
            known.
    """
    if path.endswith(MANIFEST) and os.path.isfile(path):
        return _set_of_manifest(path, path.removesuffix(MANIFEST))
    if not os.path.exists(path) and os.path.isfile(path + MANIFEST):
        return _set_of_manifest(path + MANIFEST, path)
    prefix = _prefix_of(path)
    if prefix is not None:
        return _described(
            TokenSet(prefix, "megatron", (prefix + BIN,), (prefix + IDX,))
        )
    if os.path.isdir(path) or not os.path.exists(path):
        return None
    found = _described(TokenSet(path, "", (path,)))
    if found.manifest is not None:
        return found
    if dtype is not None or eos is not None or path.endswith(".npy"):
        stat_regular(path)
        with reading(path), open(path, "rb") as file:
            start = file.read(len(finding.ARRAY_RECORD_START))
        is_array_record = start == finding.ARRAY_RECORD_START
        return TokenSet(path, "arrayrecord" if is_array_record else "npy", (path,))
    if path.endswith((BIN, IDX)) and not _has_records(path):
        stem = os.path.splitext(path)[0]
        missing = stem + (IDX if path.endswith(BIN) else BIN)
        raise ConversionError(
            f"{path}: expected {missing} next to it, as Megatron writes them, found no"
            " such file. If it is an array of tokens, pass --dtype and --eos."
        )
    return None


def _has_records(path: str) -> bool:
    """Return whether a file has one of the formats of records."""
    try:
        detect_format(path)
    except ConversionError:
        return False
    return True


def find_token_sets(folder: str) -> tuple[list[TokenSet], set[str]]:
    """Return the files of tokens below a folder that need no options.

    Returns:
        The files that belong together, and the paths of all of them.
    """
    paths = [os.path.join(folder, name) for name in files_below(folder, True)]
    found: list[TokenSet] = []
    known: set[str] = set()
    # Manifests first: they describe several files.
    for path in sorted(paths, key=lambda path: not path.endswith(MANIFEST)):
        is_index = path.endswith(IDX) and _prefix_of(path) is not None
        if path in known or not (is_index or path.endswith(MANIFEST)):
            continue
        if path.endswith(MANIFEST) and _read_manifest(path) is None:
            continue
        tokens = find_token_set(path, None, None)
        if tokens is not None:
            found.append(tokens)
            known.update([path, *tokens.files, *tokens.indices])
    return found, known


def is_prefix(path: str) -> bool:
    """Return whether a path names files of tokens, but is not the name of a file."""
    return os.path.isfile(path + MANIFEST) or (
        os.path.isfile(path + BIN) and os.path.isfile(path + IDX)
    )


def _prefix_of(path: str) -> str | None:
    """Return the prefix of Megatron's two files; None if they are not there."""
    stem, suffix = os.path.splitext(path)
    prefix = stem if suffix in (BIN, IDX) else path
    is_other_file = prefix == path and os.path.exists(path)
    has_both = os.path.isfile(prefix + BIN) and os.path.isfile(prefix + IDX)
    return prefix if has_both and not is_other_file else None


def _set_of_manifest(path: str, name: str) -> TokenSet:
    """Return all files that a manifest describes."""
    manifest = _read_manifest(path)
    if manifest is None:
        raise ConversionError(
            f"{path}: expected a manifest of gristmill tokenize, found another file."
        )
    folder = os.path.dirname(path)
    shards = [
        [os.path.join(folder, file["name"]) for file in shard["files"]]
        for shard in manifest["shards"]
    ]
    found = TokenSet(
        name,
        manifest["format"],
        tuple(paths[0] for paths in shards),
        tuple(path for paths in shards for path in paths[1:]),
    )
    return _with_manifest(found, manifest, folder)


def _described(found: TokenSet) -> TokenSet:
    """Add the manifest next to files, if it lists them."""
    folder, name = os.path.split(found.files[0])
    for stem in _possible_stems(name):
        path = os.path.join(folder, stem + MANIFEST)
        manifest = _read_manifest(path) if os.path.isfile(path) else None
        if manifest is None:
            continue
        listed = [file["name"] for each in manifest["shards"] for file in each["files"]]
        if name in listed:
            found = dataclasses.replace(found, format=manifest["format"])
            return _with_manifest(found, manifest, folder)
    return found


def _possible_stems(name: str) -> Sequence[str]:
    """Return the OUT that may have been passed to `gristmill tokenize`."""
    stem = os.path.splitext(name)[0]
    # A shard is named OUT-00000-of-00004.
    out, _, number = stem.rpartition("-of-")
    without_number = out.rpartition("-")[0] if number.isdecimal() else ""
    return [stem, without_number] if without_number else [stem]


def _with_manifest(found: TokenSet, manifest: dict[str, Any], folder: str) -> TokenSet:
    sha256 = {
        os.path.join(folder, file["name"]): file["sha256"]
        for shard in manifest["shards"]
        for file in shard["files"]
    }
    return dataclasses.replace(
        found,
        dtype=manifest["dtype"],
        eos_id=manifest["eos_id"],
        manifest=manifest,
        sha256={path: sha256[path] for path in (*found.files, *found.indices)},
    )


def _read_manifest(path: str) -> dict[str, Any] | None:
    """Return a manifest of `gristmill tokenize`; None if the file is another one."""
    if stat_regular(path).st_size > MAX_MANIFEST_BYTES:
        return None
    with reading(path), open(path, "rb") as file:
        content = file.read()
    try:
        manifest = json.loads(content)
        is_manifest = (
            manifest["format"] in ("megatron", "npy", "arrayrecord")
            and {"dtype", "eos_id", "tokenizer_sha256"} <= manifest.keys()
            and bool(manifest["shards"])
            and manifest["dtype"] in DTYPES
            and all(shard["files"] for shard in manifest["shards"])
            and all(
                file["name"] == os.path.basename(file["name"]) and file["sha256"]
                for shard in manifest["shards"]
                for file in shard["files"]
            )
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return manifest if is_manifest else None
