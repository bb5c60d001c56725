"""Records the finished shards of a conversion, in a file next to the output.

The journal has one JSON object per line: first the inputs and outputs, then the counts
of records, then each finished file.  A line that was truncated by a crash is dropped.
A conversion locks its journal while it runs.
"""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from gristmill._convert.errors import ConversionError, from_os_error

# The first bytes of a journal.
MAGIC = b'{"conversion": '


class Journal:
    """The journal of one conversion, open and locked.

    Args:
        path: The journal's file, which is created if it does not exist.
        kinds: The dataclass that describes a finished file, for each kind of file.

    Attributes:
        header: The inputs, outputs and options, as JSON values; None if it is new.
        counts: The number of records in each input; None until they are counted.
        finished: The descriptions of the files of each kind that were written and
            verified, by number.

    Raises:
        ConversionError: Another process converts to the same output, the file cannot be
            written, or it is not a journal but another file, a link or a pipe.
    """

    def __init__(self, path: str, kinds: Mapping[str, type]) -> None:
        self.path = path
        self._kinds = kinds
        # Unbuffered, so that close() does not try to write again after an error.
        self._file = io.FileIO(path, "a+", opener=_open)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ConversionError(
                f"{path}: another gristmill command is writing this output. Wait for"
                " it, or choose another OUT."
            ) from None
        self.header: dict[str, Any] | None = None
        self.counts: list[int] | None = None
        self.finished: dict[str, dict[int, Any]] = {kind: {} for kind in kinds}
        self._load()

    def _load(self) -> None:
        """Read the entries, and truncate the file after the last valid one."""
        self._file.seek(0)
        content = self._file.read()
        valid_bytes = 0
        for line in content.splitlines(keepends=True):
            if not line.endswith(b"\n") or not self._store_entry(line):
                break
            valid_bytes += len(line)
        if not valid_bytes and not MAGIC.startswith(content[: len(MAGIC)]):
            self.close()
            raise _not_a_journal(self.path, "another file")
        self._file.truncate(valid_bytes)

    def _store_entry(self, line: bytes) -> bool:
        """Store the entry of a line; return False if it is not a journal's line."""
        try:
            entry = json.loads(line)
        except ValueError:
            return False
        match entry:
            case {"conversion": {"inputs": inputs, "outputs": outputs} as header} if (
                self.header is None
                and _are_all(inputs, dict)
                and _are_all(outputs, str)
            ):
                self.header = header
            case {"counts": list(counts)} if self.header and _are_all(counts, int):
                self.counts = counts
            case dict(fields) if self.header:
                return self._store_file(fields)
            case _:
                return False
        return True

    def _store_file(self, fields: dict[str, Any]) -> bool:
        """Store the description of a finished file; return False if it is not one."""
        types = {name: type(value).__name__ for name, value in fields.items()}
        for kind, description in self._kinds.items():
            annotations = {
                name: text.partition("[")[0]
                for name, text in description.__annotations__.items()
            }
            if types == {kind: "int", **annotations}:
                number = fields.pop(kind)
                self.finished[kind][number] = description(**fields)
                return True
        return False

    def clear(self) -> None:
        """Remove all entries."""
        self._file.truncate(0)
        self.header, self.counts = None, None
        self.finished = {kind: {} for kind in self._kinds}

    def begin(self, header: dict[str, Any]) -> None:
        """Remove all entries, and start with a header."""
        self.clear()
        self.header = header
        self._append({"conversion": header})

    def set_counts(self, counts: list[int]) -> None:
        """Record the number of records in each input."""
        self.counts = counts
        self._append({"counts": counts})

    def add(self, kind: str, number: int, description: Any) -> None:
        """Record a finished file."""
        self.finished[kind][number] = description
        self._append({kind: number, **dataclasses.asdict(description)})

    def _append(self, entry: dict[str, Any]) -> None:
        remaining = json.dumps(entry).encode() + b"\n"
        try:
            while remaining:
                remaining = remaining[self._file.write(remaining) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise from_os_error(error, self.path) from error

    def close(self) -> None:
        """Close the file and release the lock."""
        self._file.close()


def _open(path: str, flags: int) -> int:
    """Open a journal's file without blocking.

    Links are rejected, because the creator of a link could redirect writes to any file.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if os.path.islink(path):
            raise _not_a_journal(path, "a link") from error
        raise from_os_error(error, path) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_a_journal(path, "a special file")
    return fd


def _not_a_journal(path: str, found: str) -> ConversionError:
    return ConversionError(
        f"{path}: expected the journal of a conversion, found {found}. Move it, or"
        " choose another OUT."
    )


def _are_all(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)
