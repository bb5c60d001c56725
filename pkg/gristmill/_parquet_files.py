"""Finds Parquet files, reads their footers and decodes one row group at a time."""

from __future__ import annotations

import collections
import contextlib
import functools
import glob
import importlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gristmill._columns import Columns
from gristmill._types import Int64Array
from gristmill.errors import CorruptRecord

__all__ = ["ParquetFiles", "find_files"]

FOOTER_THREADS = 16
KEPT_FOOTERS = 16

Path = str | os.PathLike[str]


def find_files(paths: Path | Sequence[Path]) -> tuple[str, ...]:
    """Return the files that paths, folders, patterns and URLs stand for, in order.

    Raises:
        FileNotFoundError: A folder or pattern has no Parquet files.
        ValueError: The list of paths is empty.
        TypeError: A path is no path.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ValueError("paths is empty. Pass at least one Parquet file.")
    return tuple(file for path in given for file in _expand(_as_text(path)))


def _as_text(path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            "paths must be a path, a pattern, a URL or a list of these, got one of type"
            f" {type(path).__name__}."
        )
    return os.fsdecode(path)


def _expand(path: str) -> list[str]:
    if _is_url(path):
        system, inside = _file_system(path)
        is_folder, find = system.isdir, system.glob
        prefix = path.partition("://")[0] + "://"
    else:
        inside, is_folder, prefix = path, os.path.isdir, ""
        find = functools.partial(glob.glob, recursive=True)
    if is_folder(inside):
        found = find(f"{glob.escape(inside.rstrip('/'))}/*.parquet")
    elif glob.has_magic(inside) and not (prefix == "" and os.path.exists(inside)):
        found = find(inside)
    else:
        return [path]
    if not found:
        raise FileNotFoundError(
            f"{path} has no Parquet files. A folder is searched for *.parquet, not for"
            " folders in it: pass a pattern such as 'folder/**/*.parquet' for those."
        )
    return [name if "://" in name else prefix + name for name in sorted(found)]


def _is_url(path: str) -> bool:
    return "://" in path


def _file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Reading {url} needs the fsspec package. Install it with:"
            " pip install 'gristmill[remote]'"
        ) from error
    system, path = url_to_fs(url)
    return system, path


def _version(path: str) -> tuple[Any, ...]:
    """What changes when a file does."""
    if _is_url(path):
        system, inside = _file_system(path)
        return system.size(inside), system.ukey(inside)
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def _explained(path: str, doing: str) -> Iterator[None]:
    """Turn what pyarrow raises into errors that name the file."""
    import pyarrow

    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{path} does not exist. Check paths, and that it stays in place while it"
            " is read."
        ) from error
    except (pyarrow.ArrowException, OSError) as error:
        # The operating system's errors have a number; those of the format do not.
        if getattr(error, "errno", None) is not None:
            error.add_note(f"while {doing} {path}")
            raise
        raise CorruptRecord(
            f"{path}: {doing} failed: {error}. It is no Parquet file, or damaged: write"
            " it again, or leave it out of paths."
        ) from error


class ParquetFiles:
    """The row groups of one or many files, numbered through.

    Args:
        paths: Local files and URLs, at least one.
        columns: Names of the columns to read, in this order; None for all.
        read_kwargs: Further arguments of ``pyarrow.parquet.ParquetFile``.

    Holds no open files, so it can be pickled.  Thread-safe.

    Attributes:
        paths: The files, in order.
        columns: Names of the columns that are read.
        rows: Rows of each row group, int64 of shape (G,).
    """

    def __init__(
        self,
        paths: Sequence[str],
        columns: Sequence[str] | None,
        read_kwargs: Mapping[str, Any],
    ) -> None:
        self.paths = tuple(paths)
        self._read_kwargs = dict(read_kwargs)
        self._footers: collections.OrderedDict[int, Any] = collections.OrderedDict()
        self._lock = threading.Lock()
        with ThreadPoolExecutor(min(FOOTER_THREADS, len(self.paths))) as pool:
            # Each footer is dropped once its counts are known: many are large.
            opened = list(pool.map(self._look_at, self.paths))
        self._versions = [version for version, _, _ in opened]
        self._first_group = np.cumsum([0, *(len(rows) for _, rows, _ in opened)])
        self.rows: Int64Array = np.concatenate([rows for _, rows, _ in opened])
        schemas = [schema for _, _, schema in opened]
        self.columns = _chosen(schemas[0], columns, self.paths[0])
        self._check_schemas(schemas)

    def read(self, group: int) -> Columns:
        """Decode a row group.

        Raises:
            CorruptRecord: It is damaged, or the file has changed.
            OSError: It cannot be read.
        """
        number = int(self._first_group.searchsorted(group, "right")) - 1
        path, inside = self.paths[number], group - int(self._first_group[number])
        with _explained(path, f"decoding row group {inside}"):
            self._check_version(number)
            with self._open(path, self._footers.get(number)) as file:
                self._remember(number, file.metadata)
                table = file.read_row_group(inside, columns=list(self.columns))
                return _as_columns(table, self.columns)

    def __getstate__(self) -> dict[str, Any]:
        kept = {**vars(self), "_footers": collections.OrderedDict()}
        del kept["_lock"]
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()
        # Where this is loaded for several workers they share the import.
        importlib.import_module("pyarrow.parquet")

    def _look_at(self, path: str) -> tuple[tuple[Any, ...], Int64Array, dict[str, Any]]:
        """The version of a file, the rows of its row groups, and its columns' types."""
        with _explained(path, "reading the footer"):
            version = _version(path)
            with self._open(path, None) as file:
                footer, schema = file.metadata, file.schema_arrow
        counts = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        if len(set(schema.names)) != len(schema.names):
            raise ValueError(
                f"{path} has two columns of one name: {schema.names}. Rows are dicts,"
                " which hold one of each: rename them."
            )
        types = {name: str(schema.field(name).type) for name in schema.names}
        return version, np.array(counts, np.int64), types

    def _open(self, path: str, footer: Any) -> Any:
        from pyarrow import fs, parquet

        kwargs = {"page_checksum_verification": True, **self._read_kwargs}
        if not _is_url(path):
            return parquet.ParquetFile(path, metadata=footer, **kwargs)
        system, inside = _file_system(path)
        handle = fs.PyFileSystem(fs.FSSpecHandler(system)).open_input_file(inside)
        return parquet.ParquetFile(handle, metadata=footer, **kwargs)

    def _remember(self, number: int, footer: Any) -> None:
        """Keep the footers of the files used last: some take long to parse."""
        with self._lock:
            self._footers[number] = footer
            self._footers.move_to_end(number)
            while len(self._footers) > KEPT_FOOTERS:
                self._footers.popitem(last=False)

    def _check_version(self, number: int) -> None:
        path, was, now = self.paths[number], self._versions[number], None
        now = _version(path)
        if now != was:
            raise CorruptRecord(
                f"{path} has changed since it was opened: it had {was[0]} bytes and has"
                f" {now[0]}. Leave a file in place while it is read; make a new"
                " ParquetDataSource of the new one."
            )

    def _check_schemas(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        first = schemas[0]
        for path, types in zip(self.paths, schemas, strict=True):
            for name in self.columns:
                if types.get(name) != first[name]:
                    found = types.get(name, "missing")
                    raise ValueError(
                        f"{path}: column {name!r} is {found}, but {first[name]} in"
                        f" {self.paths[0]}. All files of a data source must have the"
                        " same columns: choose others with columns=, or make one data"
                        " source of each kind."
                    )


def _as_columns(table: Any, names: Sequence[str]) -> Columns:
    arrays = {name: table.column(name).to_numpy() for name in names}
    objects = [name for name in names if arrays[name].dtype.hasobject]
    return Columns(arrays, sum(table.column(name).nbytes for name in objects))


def _chosen(
    schema: Mapping[str, Any], columns: Sequence[str] | None, path: str
) -> tuple[str, ...]:
    if columns is None:
        return tuple(schema)
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got the str {columns!r}.")
    chosen = tuple(dict.fromkeys(columns))
    if not chosen:
        raise ValueError("columns is empty. Name at least one, or pass None for all.")
    for name in chosen:
        if name not in schema:
            raise ValueError(
                f"{path} has no column {name!r}. It has {', '.join(map(repr, schema))}."
            )
    return chosen
