"""Reading of index.json, which lists the shards of a MosaicML Streaming data set."""

from __future__ import annotations

import dataclasses
import json
import os
import posixpath
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from gristmill.errors import CorruptRecord
from gristmill.sources._mds_columns import Columns
from gristmill.sources._record_files import FAR_THREADS, find_file, in_threads
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._urls import is_local, local_path

__all__ = ["Shard", "read_indices"]

# Compressions by the suffix of a shard.
CODECS = {
    "br": "brotli",
    "bz2": "bz2",
    "gz": "gzip",
    "snappy": "snappy",
    "zstd": "zstd",
}
# The number of samples and one offset.
LEAST_BYTES = 8


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file of samples.

    `path` is its path without compression.  `file` is the file that exists, and `codec`
    its compression, or None.  `bytes` is its size without compression.  `hashes` are
    the hexadecimal digests of the uncompressed bytes by algorithm.  `version` changes
    if the index.json is written again.
    """

    path: str
    file: str
    samples: int
    bytes: int
    codec: str | None
    columns: Columns
    hashes: Mapping[str, str]
    version: str


def read_indices(
    folders: Sequence[str],
    storage_options: Mapping[str, Any] | None,
    remote_options: RemoteOptions | None,
) -> list[Shard]:
    """Return the shards of data sets, in order.

    Raises:
        OSError: An index.json, or a shard on this machine, does not exist.
        CorruptRecord: An index.json is damaged, or a shard on this machine has another
            size.
    """

    def read(folder: str) -> list[Shard]:
        path, data, version = _read(folder, storage_options, remote_options)
        try:
            index = json.loads(data)
            _expect(index, "version", (2,))
            shards = [
                _Parser(folder, entry, version).shard()
                for entry in _field(index, "shards", list)
            ]
        except CorruptRecord:
            raise
        except (ValueError, RecursionError) as error:
            raise CorruptRecord(
                f"{path}: not an index of MosaicML Streaming, or damaged: {error}"
            ) from None
        return shards

    return [
        shard
        for shards in in_threads(read, folders, FAR_THREADS)
        for shard in shards
        if shard.samples
    ]


def _read(
    folder: str,
    storage_options: Mapping[str, Any] | None,
    remote_options: RemoteOptions | None,
) -> tuple[str, bytes, str]:
    """Return the path, the bytes and the version of the index.json in a folder."""
    path = _join(folder, "index.json")
    file = find_file(path, "pread", storage_options, remote_options)
    if isinstance(file, str):
        with open(file, "rb") as opened:
            data = opened.read()
            version = os.fstat(opened.fileno()).st_mtime_ns
    else:
        data, version = file.read_range(0, file.size), file.version
    # Some file systems have no modification times, or imprecise ones.
    return path, data, f"{version}-{zlib.crc32(data)}"


def _join(folder: str, name: str) -> str:
    return os.path.join(folder, name) if is_local(folder) else f"{folder}/{name}"


class _BadIndexError(ValueError):
    """Raised if a field of an index.json is missing or invalid."""


def _field(entry: Any, name: str, types: type | tuple[type, ...]) -> Any:
    """Return a field of a JSON object; raise _BadIndexError if its type is wrong."""
    if not isinstance(entry, dict) or name not in entry:
        raise _BadIndexError(f"expected an object with {name!r}, got {_short(entry)}")
    value = entry[name]
    if not isinstance(value, types) or isinstance(value, bool):
        kinds = types if isinstance(types, tuple) else (types,)
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise _BadIndexError(f"{name} must be a {expected}, got {_short(value)}")
    return value


def _expect(entry: Any, name: str, values: Sequence[Any]) -> Any:
    value = _field(entry, name, object)
    if value not in values:
        expected = " or ".join(map(repr, values))
        raise _BadIndexError(f"{name} must be {expected}, got {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else f"{text[:57]}..."


@dataclasses.dataclass(frozen=True)
class _Parser:
    """Parses the entry of one shard in the index.json of a folder."""

    folder: str
    entry: Any
    version: str

    def shard(self) -> Shard:
        _expect(self.entry, "version", (2,))
        _expect(self.entry, "format", ("mds",))
        raw = _field(self.entry, "raw_data", dict)
        samples = _count(self.entry, "samples", 0)
        file, codec = self._file(raw)
        return Shard(
            self._path(raw),
            file,
            samples,
            _count(raw, "bytes", LEAST_BYTES),
            codec,
            self._columns(),
            _field(raw, "hashes", dict),
            self.version,
        )

    def _file(self, raw: Any) -> tuple[str, str | None]:
        """Return the file that exists, and its compression, or None."""
        path = self._path(raw)
        compression = _field(self.entry, "compression", (str, type(None)))
        if not compression:
            self._check_file(path, raw)
            return path, None
        if is_local(self.folder) and os.path.exists(local_path(path)):
            # Streaming decompressed the shard here.
            self._check_file(path, raw)
            return path, None
        compressed = _field(self.entry, "zip_data", dict)
        name = compression.partition(":")[0]
        if name not in CODECS:
            raise _BadIndexError(
                f"compression must be one of {', '.join(CODECS)}, got {compression!r}"
            )
        self._check_file(self._path(compressed), compressed)
        return self._path(compressed), CODECS[name]

    def _path(self, file: Any) -> str:
        name = posixpath.normpath(_field(file, "basename", str))
        if name.startswith(("/", "../")):
            raise _BadIndexError(
                f"basename must be in the data set's folder, got {name!r}"
            )
        return _join(self.folder, name)

    def _check_file(self, path: str, file: Any) -> None:
        """Check that a file on this machine has the size in the index."""
        size = _count(file, "bytes", 0)
        if not is_local(path):
            return
        found = os.stat(local_path(path)).st_size
        if found != size:
            raise CorruptRecord(
                f"{path}: the file has {found} bytes, expected {size} by index.json: it"
                " was cut off, is still being written, or belongs to another data set."
            )

    def _columns(self) -> Columns:
        names, encodings, sizes = (
            _field(self.entry, f"column_{field}", list)
            for field in ("names", "encodings", "sizes")
        )
        if not len(names) == len(encodings) == len(sizes):
            raise _BadIndexError("column_names, _encodings and _sizes differ in length")
        for name, encoding in zip(names, encodings, strict=True):
            _field({"column_names": name}, "column_names", str)
            _field({"column_encodings": encoding}, "column_encodings", str)
        if len({*names}) < len(names):
            raise _BadIndexError(f"column_names must differ, got {_short(names)}")
        fixed = [_count({"column_sizes": s or 0}, "column_sizes", 0) for s in sizes]
        return Columns(tuple(names), tuple(encodings), tuple(fixed))


def _count(entry: Any, name: str, least: int) -> int:
    value: int = _field(entry, name, int)
    if not least <= value < 2**32:
        raise _BadIndexError(
            f"{name} must be at least {least} and less than 2**32, got {value}"
        )
    return value
