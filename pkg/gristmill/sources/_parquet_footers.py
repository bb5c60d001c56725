"""A cache of the footers of many Parquet files, for later programs.

Each list of data files has one file in the cache folder; docs/formats/footers.md
describes the format. Only numbers and texts are read from it. The entry of a data file
is valid as long as the file's size and modification time in ns are unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gristmill import _core
from gristmill._base import log
from gristmill._base.types import Int64Array
from gristmill.sources._columns import ColumnFacts
from gristmill.sources._sidecars import cache_dir

__all__ = ["Footer", "Stamp", "footer_cache_path", "load_footers", "save_footers"]

FORMAT = 2

# Errors that reading a malicious file may raise.
READ_ERRORS = (
    *(OSError, ValueError, TypeError, AttributeError, LookupError, OverflowError),
    RecursionError,
)

# Size of a file in bytes, and its modification time in ns.
Stamp = tuple[int, int]


class Footer(NamedTuple):
    """The part of a file's footer that a source needs.

    Attributes:
        rows: Number of rows of each row group, int64 of shape (G,).
        types: Types of columns, by name.
        facts: Facts of the columns whose dtype depends on them, by name.
    """

    rows: Int64Array
    types: Mapping[str, str]
    facts: Mapping[str, ColumnFacts]


def footer_cache_path(paths: Sequence[str]) -> str:
    """Return the path of the cache of local files' footers; it need not exist."""
    all_paths = "\0".join(map(os.path.abspath, paths)).encode(errors="surrogateescape")
    name = hashlib.sha256(all_paths).hexdigest()[:32]
    return os.path.join(cache_dir(), "parquet", f"{name}.json")


def load_footers(path: str, stamps: Sequence[Stamp]) -> list[Footer | None]:
    """Return the cached footers, with None for each file whose stamp differs.

    Returns only None if the cache is missing, torn or of another format.
    """
    try:
        with open(path, "rb") as file:
            digest, body = file.readline().strip(), file.read()
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise ValueError("its checksum is wrong")
        entries = _parse(json.loads(body), len(stamps))
    except FileNotFoundError:
        return [None] * len(stamps)
    except READ_ERRORS as error:
        log.info("Cannot use the cached footers in %s: %s", path, error)
        return [None] * len(stamps)
    return [
        footer if entry_stamp == stamp else None
        for stamp, (entry_stamp, footer) in zip(stamps, entries, strict=True)
    ]


def _parse(content: Any, file_count: int) -> list[tuple[Stamp, Footer]]:
    """Return the stamp and the footer of each data file; raise if one is invalid."""
    if content["format"] != FORMAT or content["writer"] != _writer():
        version = content["format"], content["writer"]
        raise ValueError(
            f"expected format {FORMAT} by pyarrow {_writer()}, found {version}"
        )
    schemas = content["schemas"]
    for types in schemas:
        if not all(type(text) is str for text in types.values()):
            raise ValueError(f"expected the types of columns as str, found {types}")
    entries = []
    for size, mtime_ns, schema_number, counts, nulls, large in content["files"]:
        rows = np.array(counts, np.int64).reshape(len(counts))
        if rows.size and rows.min() < 0:
            raise ValueError(f"expected at least 0 rows per row group, found {counts}")
        names = [*schemas[schema_number]]
        facts = {
            names[column]: ColumnFacts(column in nulls, column in large)
            for column in {*nulls, *large}
        }
        entries.append(((size, mtime_ns), Footer(rows, schemas[schema_number], facts)))
    if len(entries) != file_count:
        raise ValueError(f"expected {file_count} files, found {len(entries)}")
    return entries


def save_footers(path: str, stamps: Iterable[Stamp], footers: Sequence[Footer]) -> None:
    """Write footers to the cache, atomically."""
    schema_numbers: dict[tuple[tuple[str, str], ...], int] = {}
    files: list[tuple[Any, ...]] = []
    for stamp, (rows, types, facts) in zip(stamps, footers, strict=True):
        number = schema_numbers.setdefault((*types.items(),), len(schema_numbers))
        by_column = [(i, facts[name]) for i, name in enumerate(types) if name in facts]
        nulls = [column for column, fact in by_column if fact.has_nulls]
        large = [column for column, fact in by_column if fact.has_large_ints]
        files.append((*stamp, number, rows.tolist(), nulls, large))
    content = {
        "format": FORMAT,
        "writer": _writer(),
        "schemas": [dict(items) for items in schema_numbers],
        "files": files,
    }
    body = json.dumps(content, separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    try:
        _core.replace_file(path, digest + b"\n" + body)
    except OSError as error:
        log.info("Cannot cache the footers of Parquet files in %s: %s", path, error)


def _writer() -> str:
    """Return the version of pyarrow, which formats the texts of types."""
    import pyarrow

    return str(pyarrow.__version__)
