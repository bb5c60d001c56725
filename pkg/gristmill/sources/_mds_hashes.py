"""Comparison of shards with the hashes in index.json."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gristmill.errors import CorruptRecord
from gristmill.sources._mds_index import Shard

if TYPE_CHECKING:
    from gristmill.sources._remote import RemoteFile

__all__ = ["check_hash", "digest_of"]

READ_BYTES = 1 << 20
FAR_READ_BYTES = 8 << 20


def digest_of(shard: Shard, algorithm: str) -> str:
    """Return the digest of a shard in index.json.

    Raises:
        ValueError: There is none, or the algorithm is unknown.
        ImportError: The algorithm needs a package that is not installed.
    """
    digest = shard.hashes.get(algorithm)
    if not isinstance(digest, str):
        raise ValueError(
            f"validate_hash must be one of the hashes in index.json of {shard.path},"
            f" {', '.join(shard.hashes) or 'which has none'}, got {algorithm!r}."
        )
    _new_hash(algorithm)
    return digest


def check_hash(
    file: str | RemoteFile, path: str, algorithm: str, expected: str
) -> None:
    """Read a whole file; raise CorruptRecord if its digest is not `expected`.

    Args:
        file: The file.
        path: The name of the file in errors.
        algorithm: The name of the hash in index.json.
        expected: The hexadecimal digest.
    """
    digest = _new_hash(algorithm)
    for piece in _pieces(file):
        digest.update(piece)
    if digest.hexdigest() != expected:
        raise CorruptRecord(
            f"{path}: its {algorithm} is {digest.hexdigest()}, expected {expected} by"
            " index.json. Download it again."
        )


def _pieces(file: str | RemoteFile) -> Iterator[bytes]:
    if isinstance(file, str):
        with open(file, "rb") as opened:
            while piece := opened.read(READ_BYTES):
                yield piece
    else:
        for begin in range(0, file.size, FAR_READ_BYTES):
            yield file.read_range(begin, min(FAR_READ_BYTES, file.size - begin))


def _new_hash(algorithm: str) -> Any:
    if algorithm.startswith("xxh"):
        try:
            return getattr(importlib.import_module("xxhash"), algorithm)()
        except ModuleNotFoundError as error:
            raise ImportError(
                f"Hashes of {algorithm} need the xxhash package. Install it with:"
                " pip install xxhash"
            ) from error
        except AttributeError:
            pass
    try:
        return hashlib.new(algorithm, usedforsecurity=False)
    except ValueError:
        raise ValueError(
            f"validate_hash must be a hash of hashlib or xxhash, got {algorithm!r}."
        ) from None
