"""Reads the lines of text files, plain or compressed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator

from gristmill import _core
from gristmill._convert import rows
from gristmill._convert.compressed_text import is_compressed, open_text
from gristmill._convert.errors import ConversionError
from gristmill._convert.inputs import ScannedInput, reading

# A line with only these bytes is not a record, as in `_core.open_line_file`.
BLANKS = b" \t\r\n"


@dataclasses.dataclass(frozen=True)
class LinesInput(ScannedInput):
    """A text file; each line that is not blank is a record."""

    def can_seek(self) -> bool:
        # Without a folder for the index, each process would scan the file for it.
        if self.index_dir is None:
            return False
        with reading(self.path):
            return not is_compressed(self.path)

    def open(self) -> _core.SpanFile:
        """Open an uncompressed file. An existing index is loaded."""
        return _open_lines(self.path, self.index_paths("lines"), self.version())

    def count(self) -> int:
        if not self.can_seek():
            return sum(1 for _ in self._numbered_lines())
        return super().count()

    def records(self, first: int) -> Iterator[bytes]:
        if self.can_seek():
            yield from super().records(first)
            return
        for _, line in itertools.islice(self._numbered_lines(), first, None):
            yield line

    def place(self, position: int) -> str:
        # Blank lines are not records, so that the lines before must be counted.
        lines = itertools.islice(self._numbered_lines(), position, None)
        return f"line {next(lines)[0]}"

    def _numbered_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, each after its number, from 1."""
        with reading(self.path), open_text(self.path) as file:
            for line_number, line in enumerate(file, start=1):
                if line.strip(BLANKS):
                    yield line_number, line.removesuffix(b"\n").removesuffix(b"\r")


@functools.lru_cache(maxsize=1)  # A process reads several shards of one file.
def _open_lines(
    path: str, index_paths: tuple[str, ...], version: tuple[int, int]
) -> _core.SpanFile:
    del version  # Only part of the cache key, so that a changed file is opened again.
    return _core.open_line_file(
        path, "pread", index_paths, _core.ChunkCache(0), _core.ScanProgress()
    )


@dataclasses.dataclass(frozen=True)
class JsonLinesInput(LinesInput):
    """A file with a JSON value in each line."""

    encoding: rows.Encoding

    def records(self, first: int) -> Iterator[bytes]:
        for position, line in enumerate(super().records(first), first):
            yield self._record(position, line)

    def _record(self, position: int, line: bytes) -> bytes:
        try:
            value = json.loads(line)
            if self.encoding == "json":
                return line.strip()
            return rows.example_of_object(value)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ConversionError(
                f"{self.path}: {self.place(position)} is not JSON: {error}. Fix or"
                " remove it."
            ) from None
        except ConversionError as problem:
            raise ConversionError(
                f"{self.path}: {self.place(position)}: {problem}"
            ) from None
