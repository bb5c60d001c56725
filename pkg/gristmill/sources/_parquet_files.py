"""Find Parquet files, read their footers and decode one row group at a time."""

from __future__ import annotations

import bisect
import contextlib
import functools
import glob
import importlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill._base.threads import threads_to_compute
from gristmill._base.types import Int64Array
from gristmill.errors import CorruptRecord, RemoteError
from gristmill.sources._columns import ColumnFacts, ColumnForm, Columns
from gristmill.sources._file_paths import FilePaths
from gristmill.sources._parquet_footers import (
    Footer,
    footer_cache_path,
    load_footers,
    save_footers,
)
from gristmill.sources._remote import RemoteFile, RemoteStream
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._urls import file_system_of, is_url

__all__ = ["ParquetFiles", "find_files"]

# URLs that stand for one file: HTTP servers cannot list folders, and their URLs may
# contain "?".  Chained URLs such as "simplecache::..." are not searched, either.
FILES_ONLY = re.compile(r"https?://|[^/]*::")

FOOTER_THREADS = 16
# Footers are cached if a source has at least this many files.
CACHE_MIN_FILES = 32
MAX_OPEN_FILES = 16  # That a process keeps open between reads.

Path = str | os.PathLike[str]


def find_files(
    paths: Path | Sequence[Path], storage_options: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the files that paths, folders, patterns and URLs stand for, in order."""
    path_list = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not path_list:
        raise ValueError(
            "paths must have at least one Parquet file, got an empty list."
        )
    files: list[str] = []
    for path in path_list:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                "paths must be a path, a pattern, a URL or a list of these, got"
                f" {path!r} ({type(path).__name__})."
            )
        name = os.fsdecode(path)
        if storage_options and not is_url(name):
            raise ValueError(
                f"storage_options needs a URL, got the path {name}. Leave it out."
            )
        files += _expand(name, storage_options)
    return tuple(files)


def _expand(path: str, storage_options: Mapping[str, Any]) -> list[str]:
    if FILES_ONLY.match(path):
        return [path]
    if is_url(path):
        system, location = file_system_of(path, storage_options)
        is_folder, find = system.isdir, system.glob
        prefix = path.partition("://")[0] + "://"
    else:
        location, is_folder, prefix = path, os.path.isdir, ""
        find = functools.partial(glob.glob, recursive=True)
    if is_folder(location):
        names = find(f"{glob.escape(location.rstrip('/'))}/*.parquet")
    elif glob.has_magic(location) and not (prefix == "" and os.path.exists(location)):
        names = find(location)
    else:
        return [path]
    if not names:
        raise FileNotFoundError(
            f"Expected Parquet files at {path}, found none. A folder is searched for"
            " *.parquet, but not the folders in it: pass a pattern such as"
            " 'folder/**/*.parquet' for those."
        )
    return [name if "://" in name else prefix + name for name in sorted(names)]


@contextlib.contextmanager
def _name_file_in_errors(path: str, action: str) -> Iterator[None]:
    """Convert the errors of pyarrow to errors that name the file."""
    import pyarrow

    try:
        yield
    except RemoteError:
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"Expected a Parquet file at {path}, found no file. Check paths, and leave"
            " the file in place while it is read."
        ) from error
    except (pyarrow.ArrowException, OSError) as error:
        # Errors of the operating system have an errno; errors of the format do not.
        if getattr(error, "errno", None) is not None:
            error.add_note(f"while {action} {path}")
            raise
        raise CorruptRecord(
            f"Expected a Parquet file at {path}, but {action} failed: {error}. Write"
            " the file again if it is damaged, or leave it out of paths."
        ) from error


class _LocalFile(NamedTuple):
    """A local file, with its size and modification time when `open` was called."""

    path: str
    bytes: int
    mtime_ns: int

    @classmethod
    def open(cls, path: str) -> _LocalFile:
        """Return the file's current state; only reads its size and time."""
        status = os.stat(path)
        return cls(path, status.st_size, status.st_mtime_ns)

    def change(self) -> str:
        """Return how the file changed since it was opened, or "" if it did not."""
        current = _LocalFile.open(self.path)
        if current == self:
            return ""
        return (
            f"the file has changed since it was opened: it had {self.bytes} bytes, and"
            f" has {current.bytes} now"
        )


class ParquetFiles:
    """The row groups of one or many files, numbered consecutively.

    Can be pickled, without its open files. Only one thread at a time may call `read` or
    `close`: ParquetDataSource holds its lock, which guards `_open_files` and `_forms`.
    A forked child gets a new lock, and keeps the open files that no thread was reading.

    Attributes:
        paths: The files, in order.
        columns: Names of the columns that are read.
        rows: Number of rows of each row group, int64 of shape (G,).
    """

    def __init__(
        self,
        paths: Sequence[str],
        columns: Sequence[str] | None,
        *,
        storage_options: Mapping[str, Any],
        remote_options: RemoteOptions | None,
        read_kwargs: Mapping[str, Any],
    ) -> None:
        self.paths = FilePaths(paths)
        self._storage_options = dict(storage_options)
        self._remote_options = remote_options
        self._read_kwargs = dict(read_kwargs)
        # The most recently used files by number, the latest one last: open local files,
        # and the footers of remote files.
        self._open_files: dict[int, Any] = {}
        with ThreadPoolExecutor(min(FOOTER_THREADS, len(self.paths))) as pool:
            # Each is a _LocalFile or a RemoteFile, in the order of `paths`.
            self._files = list(pool.map(self._open, self.paths))
            footers = self._read_footers(pool)
        counts = [len(footer.rows) for footer in footers]
        # Number of each file's first row group, then the number of all row groups.
        self._first_group = [0, *itertools.accumulate(counts)]
        self.rows: Int64Array = np.concatenate([footer.rows for footer in footers])
        schemas = [footer.types for footer in footers]
        self.columns = _choose_columns(schemas[0], columns, self.paths[0])
        self._check_schemas(schemas)
        self._facts = {n: _join_facts(n, footers) for n in self.columns}
        self._forms: dict[str, ColumnForm] = {}

    def read(self, group: int) -> Columns:
        """Decode a row group; raise CorruptRecord if it is damaged or has changed."""
        number = bisect.bisect_right(self._first_group, group) - 1
        path, inside = self.paths[number], group - self._first_group[number]
        with _name_file_in_errors(path, f"decoding row group {inside}"):
            if change := self._files[number].change():
                raise CorruptRecord(
                    f"{path}: {change}. Do not change a file while it is read; make a"
                    " new ParquetDataSource for the new one."
                )
            with self._open_to_read(number) as file:
                table = file.read_row_group(
                    inside,
                    columns=list(self.columns),
                    use_threads=threads_to_compute() > 1,
                )
            # `change` found no change, so a cached footer must be wrong.
            group_count = self._first_group[number + 1] - self._first_group[number]
            row_count = int(self.rows[group])
            if (group_count, row_count) != (
                file.num_row_groups,
                table.num_rows,
            ) or not set(self.columns).issubset(table.column_names):
                raise CorruptRecord(
                    f"{path}: expected {row_count} rows of {list(self.columns)} in row"
                    f" group {inside} of {group_count}, found {table.num_rows} rows in"
                    f" row group {inside} of {file.num_row_groups}. The cached footer"
                    f" is wrong: delete {footer_cache_path(self.paths)}."
                )
            return self._columns_of(table, f"{path}: row group {inside}")

    def _columns_of(self, table: Any, row_group: str) -> Columns:
        """Return the columns of a row group; all groups have the same dtypes."""
        from gristmill.sources import _arrow_values as values

        arrays: dict[str, npt.NDArray[Any]] = {}
        content_bytes = 0
        for name, facts in self._facts.items():
            column = table.column(name)
            try:
                if facts.has_nulls or column.null_count:
                    values.check_facts(column, facts)
            except ValueError as error:
                raise CorruptRecord(
                    f"{row_group}, column {name!r}: {error}, contrary to the statistics"
                    " of the file. Write the file again. If its statistics are right,"
                    f" delete {footer_cache_path(self.paths)}."
                ) from error
            arrays[name] = values.to_array(column, facts)
            if arrays[name].dtype.hasobject:
                content_bytes += column.nbytes
        # Types are the same in all row groups.
        self._forms = self._forms or {
            name: values.form_of(table.column(name).type, facts)
            for name, facts in self._facts.items()
        }
        return Columns(arrays, content_bytes, self._forms)

    def close(self) -> None:
        """Close the open files; reading opens them again."""
        self._open_files.clear()

    def __getstate__(self) -> dict[str, Any]:
        # The stamps of local files form one array: there may be thousands.
        local = [file[1:] for file in self._files if isinstance(file, _LocalFile)]
        stamps = np.array(local, np.int64).reshape(-1, 2)
        remote = [
            None if isinstance(file, _LocalFile) else file for file in self._files
        ]
        files = stamps, remote
        return {**vars(self), "_open_files": {}, "_forms": {}, "_files": files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        stamps, remote = state["_files"]
        paths = (
            path for path, file in zip(self.paths, remote, strict=True) if not file
        )
        local = map(_LocalFile, paths, *stamps.T.tolist())
        self._files = [file or next(local) for file in remote]
        # A parent that unpickles this for several workers imports pyarrow once.
        importlib.import_module("pyarrow.parquet")
        importlib.import_module("gristmill.sources._arrow_values")

    @contextlib.contextmanager
    def _open_to_read(self, number: int) -> Iterator[Any]:
        """Yield a file by its number, opened, and keep it for the next read."""
        # Popped, so that a child forked meanwhile does not share a file in use.
        file, cached = self._files[number], self._open_files.pop(number, None)
        if isinstance(file, RemoteFile):
            with self._open_parquet(file, cached) as parsed:
                yield parsed
            cached = parsed.metadata
        else:
            cached = cached or self._open_parquet(file, None)
            yield cached
        self._open_files[number] = cached
        if len(self._open_files) > MAX_OPEN_FILES:
            del self._open_files[next(iter(self._open_files))]

    def _read_footers(self, pool: Executor) -> list[Footer]:
        local = [file for file in self._files if isinstance(file, _LocalFile)]
        # Cache if there are many files, all local.  Do not cache with read_kwargs: they
        # may change types or contain secrets.
        if len(local) < max(CACHE_MIN_FILES, len(self._files)) or self._read_kwargs:
            return list(pool.map(self._read_footer, self.paths, self._files))
        stamps = [(file.bytes, file.mtime_ns) for file in local]
        cache_path = footer_cache_path(self.paths)
        cached = load_footers(cache_path, stamps)
        missing = [i for i, footer in enumerate(cached) if footer is None]
        new = pool.map(lambda i: self._read_footer(self.paths[i], local[i]), missing)
        footers = [footer or next(new) for footer in cached]
        if missing:
            save_footers(cache_path, stamps, footers)
        return footers

    def _open(self, path: str) -> _LocalFile | RemoteFile:
        with _name_file_in_errors(path, "reading the footer"):
            if is_url(path):
                return RemoteFile(path, self._storage_options, self._remote_options)
            return _LocalFile.open(path)

    def _read_footer(self, path: str, file: _LocalFile | RemoteFile) -> Footer:
        """Read a footer, and drop it after extracting the facts: many are large."""
        with (
            _name_file_in_errors(path, "reading the footer"),
            self._open_parquet(file, None) as parsed,
        ):
            footer, schema = parsed.metadata, parsed.schema_arrow
        counts = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        if len(set(schema.names)) != len(schema.names):
            raise ValueError(
                f"The columns of {path} must have different names, got {schema.names}."
                " Rename the duplicates, because rows are dicts."
            )
        types = {name: str(schema.field(name).type) for name in schema.names}
        from gristmill.sources._parquet_statistics import facts_of_columns

        facts = facts_of_columns(footer, schema)
        return Footer(np.array(counts, np.int64), types, facts)

    def _open_parquet(self, file: _LocalFile | RemoteFile, footer: Any) -> Any:
        from pyarrow import parquet

        kwargs = {
            "page_checksum_verification": True,
            # Merges requests. It would slow local reads down by a quarter.
            "pre_buffer": isinstance(file, RemoteFile),
            **self._read_kwargs,
        }
        readable = RemoteStream(file) if isinstance(file, RemoteFile) else file.path
        return parquet.ParquetFile(readable, metadata=footer, **kwargs)

    def _check_schemas(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        expected = schemas[0]
        for path, types in zip(self.paths, schemas, strict=True):
            for name in self.columns:
                if types.get(name) != expected[name]:
                    found = types.get(name, "missing")
                    raise ValueError(
                        f"{path}: column {name!r} must be {expected[name]}, like in"
                        f" {self.paths[0]}, got {found}. All files of a data source"
                        " must have the same columns: choose others with columns=, or"
                        " make one data source for each kind of file."
                    )


def _join_facts(name: str, footers: Sequence[Footer]) -> ColumnFacts:
    """Return the facts of a column over all files."""
    facts_by_file = [footer.facts[name] for footer in footers if name in footer.facts]
    return ColumnFacts(
        any(facts.has_nulls for facts in facts_by_file),
        any(facts.has_large_ints for facts in facts_by_file),
    )


def _choose_columns(
    schema: Mapping[str, Any], columns: Sequence[str] | None, path: str
) -> tuple[str, ...]:
    if columns is None:
        return tuple(schema)
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got the str {columns!r}.")
    names = tuple(dict.fromkeys(columns))
    if not names:
        raise ValueError(
            "columns must have at least one name, got none. Pass None for all."
        )
    for name in names:
        if name not in schema:
            raise ValueError(
                f"columns must be columns of {path}, got {name!r}. It has"
                f" {', '.join(map(repr, schema))}."
            )
    return names
