"""Pickles open files by name and position, without their contents.

cloudpickle converts a whole text file to an `io.StringIO`, in which the same offset may
be another row.  Here, unpickling opens the same file again at the same position.  If a
file cannot be opened again, pickling raises an error with the path to the file object.

This applies to text files and to buffered and raw binary files, as returned by `open`.
Objects that only behave like files, such as `io.BytesIO` and the results of
`gzip.open`, are pickled or rejected by their own methods.
"""

from __future__ import annotations

import codecs
import functools
import gc
import io
import itertools
import os
import stat
import sys
import types
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np

from gristmill._base.object_path import path_to
from gristmill._base.pickled_code import reduce_code
from gristmill._base.pytree_classes import with_registration
from gristmill._base.writable_arrays import reduce_array

_STEP = 1 << 20


class _CannotReopenError(Exception):
    """An open file cannot be pickled, because it cannot be opened again."""

    def __init__(self, file: Any, reason: str) -> None:
        self.file = file
        self.reason = reason

    def text(self, root: Any) -> str:
        """Return the error message for a user who pickled `root`."""
        kind = type(self.file)
        try:
            name = getattr(self.file, "name", None)
        except ValueError:
            name = None  # It was detached from its buffer.
        return (
            f"cannot pickle '{kind.__module__}.{kind.__qualname__}' object:"
            f" {path_to(self.file, root) or 'in it'} is the open file {name!r}, which"
            f" another process cannot open at the same position: {self.reason}"
        )


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles like cloudpickle, except for open files."""

    def reducer_override(self, thing: Any) -> Any:
        reduce = _REDUCERS.get(type(thing))
        if reduce is None or thing is sys.stdout or thing is sys.stderr:
            reduced = super().reducer_override(thing)
            if reduced is not NotImplemented and isinstance(thing, type):
                return with_registration(thing, reduced)
            return reduced
        return reduce(thing)

    def dump(self, thing: Any) -> None:
        """Write the pickle of a thing.

        Raises:
            TypeError: It contains an open file that cannot be opened again.
        """
        # tempfile is slow to import.  A program that has not imported it has no
        # temporary files.
        if (tempfile := sys.modules.get("tempfile")) is not None:
            _REDUCERS[tempfile._TemporaryFileWrapper] = _refuse_temporary
        try:
            super().dump(thing)
        except _CannotReopenError as error:
            raise TypeError(error.text(thing)) from None


def dumps(thing: Any, buffer_callback: Callable[[Any], Any] | None = None) -> bytes:
    """Return the pickle of a thing by `Pickler`, with arrays that will be writable."""
    file = io.BytesIO()
    _MessagePickler(file, 5, buffer_callback).dump(thing)
    return file.getvalue()


class _MessagePickler(Pickler):
    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is np.ndarray:
            return reduce_array(thing)
        return super().reducer_override(thing)


def _reduce_raw(raw: io.FileIO) -> tuple[Any, ...]:
    path, identity = _check_reopenable(raw)
    return _open_raw, (path, identity, raw.tell()), vars(raw)


def _reduce_buffered(buffered: io.BufferedReader) -> tuple[Any, ...]:
    _check_reopenable(buffered)
    return _open_buffered, (buffered.raw, buffered.tell()), vars(buffered) or None


def _reduce_text(text: io.TextIOWrapper) -> tuple[Any, ...]:
    _check_reopenable(text)
    newline, position = _newline_and_position(text)
    options = text.encoding, text.errors, newline, text.line_buffering
    return _open_text, (text.buffer, options, position), vars(text) or None


def _refuse_temporary(wrapper: Any) -> Any:
    raise _CannotReopenError(wrapper, "it is removed when it is closed.")


_REDUCERS: dict[type, Callable[[Any], Any]] = {
    io.FileIO: _reduce_raw,
    io.BufferedReader: _reduce_buffered,
    io.BufferedWriter: _reduce_buffered,
    io.BufferedRandom: _reduce_buffered,
    io.TextIOWrapper: _reduce_text,
    types.CodeType: reduce_code,
}


def _open_raw(path: str, identity: tuple[int, int], position: int) -> io.FileIO:
    """Open a file again; raise ValueError if the path leads to another file by now."""
    raw = io.FileIO(path)
    if _identity(os.fstat(raw.fileno())) != identity:
        raw.close()
        raise ValueError(
            f"{path} was replaced after the sending process opened it. Keep a file in"
            " place while a loader reads it."
        )
    raw.seek(position)
    return raw


def _open_buffered(raw: io.FileIO, position: int) -> Any:
    buffered = io.BufferedReader(raw)
    buffered.seek(position)
    return buffered


def _open_text(
    buffer: io.BufferedReader, options: tuple[Any, ...], position: int
) -> io.TextIOWrapper:
    text = io.TextIOWrapper(buffer, *options)
    text.seek(position)
    return text


def _check_reopenable(file: Any) -> tuple[str, tuple[int, int]]:
    """Return the path and the identity (device, inode) of a file open for reading."""
    layer = file.buffer if isinstance(file, io.TextIOWrapper) else file
    if isinstance(layer, io.BufferedReader | io.BufferedWriter | io.BufferedRandom):
        layer = layer.raw
    if layer is None:
        raise _CannotReopenError(file, "it was detached from its buffer.")
    if layer.closed:
        raise _CannotReopenError(file, "it is closed.")
    if type(layer) is not io.FileIO:
        raise _CannotReopenError(file, f"it reads from a {type(layer).__qualname__}.")
    if layer.writable():
        raise _CannotReopenError(file, "it is open for writing.")
    now = os.fstat(layer.fileno())
    if not stat.S_ISREG(now.st_mode):
        raise _CannotReopenError(file, "it is a pipe, a socket or a device.")
    if not isinstance(layer.name, str | bytes):
        raise _CannotReopenError(
            file, "it was opened by its descriptor, without a name."
        )
    path = os.path.abspath(os.fsdecode(layer.name))
    try:
        there = _identity(os.stat(path))
    except OSError as error:
        reason = f"it was moved or removed: {path}: {error.strerror}."
        raise _CannotReopenError(file, reason) from None
    if there != _identity(now):
        raise _CannotReopenError(file, f"{path} was replaced after it was opened.")
    return path, there


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _newline_and_position(text: io.TextIOWrapper) -> tuple[str | None, int]:
    """Return the argument `newline` of a text file, and its position."""
    try:
        position = text.tell()
    except OSError:  # `for line in text` disables tell().
        return _newline_and_position_in_loop(text)
    text.seek(0)
    try:
        return _newline(text), position
    finally:
        text.seek(position)


def _newline_and_position_in_loop(text: io.TextIOWrapper) -> tuple[str | None, int]:
    """Return `_newline_and_position` for a file inside a loop over its lines.

    Computes the position as a number of characters: all that were decoded, minus those
    that the loop has not received yet.
    """
    try:
        ahead, end = _read_ahead(text)
        text.seek(0)
        newline = _newline(text)
        at_end = end < 0
        left = len(ahead) if at_end else len(ahead) - 1
        given = _characters(text, newline, end) - left
        text.seek(0)
        while given:
            given -= len(text.read(min(given, _STEP)))
        position = text.tell()
        right = text.read(len(ahead) + at_end) == ahead
        text.seek(position)
    except (OSError, UnicodeError) as error:
        raise _CannotReopenError(
            text, f"its position cannot be determined: {error}."
        ) from error
    if not right:
        raise _CannotReopenError(
            text, "its position cannot be determined in a loop over its lines."
        )
    return newline, position


def _read_ahead(text: io.TextIOWrapper) -> tuple[str, int]:
    """Return the decoded characters that were not read yet, and where they end.

    The end is an offset in bytes.  The text includes one more character, the first that
    is decoded after that offset.  At the end of the file there is no such character,
    and the offset is -1.
    """
    buffer: Any = text.buffer
    end = buffer.tell()
    characters: list[str] = []
    while buffer.tell() == end:
        character = text.read(1)
        if not character:
            return "".join(characters), -1
        characters.append(character)
    return "".join(characters), end


def _characters(text: io.TextIOWrapper, newline: str | None, end: int) -> int:
    """Count the characters in the bytes before `end`, or in all bytes if it is -1."""
    decoder: Any = codecs.getincrementaldecoder(text.encoding)(text.errors or "strict")
    if not newline:
        decoder = io.IncrementalNewlineDecoder(decoder, newline is None)
    buffer: Any = text.buffer
    count, at = 0, buffer.seek(0)
    while data := buffer.read(_STEP if end < 0 else min(_STEP, end - at)):
        at += len(data)
        count += len(decoder.decode(data))
    return count + len(decoder.decode(b"", end < 0))


def _newline(text: io.TextIOWrapper) -> str | None:
    """Return the argument `newline` of a text file.

    REQUIRES: the file's position is 0.
    """
    if not _newlines_are_known():
        raise _CannotReopenError(
            text, "this version of Python does not reveal its argument newline."
        )
    return _newline_among_referents(text)


@functools.cache
def _newlines_are_known() -> bool:
    for newline in (None, "", "\n", "\r", "\r\n"):
        with open(os.devnull, newline=newline) as text:
            text.seek(0)
            if _newline_among_referents(text) != newline:
                return False
    return True


def _newline_among_referents(text: io.TextIOWrapper) -> str | None:
    """Return the str that a text file's referents contain after its decoder, or None.

    CPython stores `newline` there.
    """
    referents = gc.get_referents(text)
    for decoder, behind in itertools.pairwise(referents):
        if isinstance(
            decoder, codecs.IncrementalDecoder | io.IncrementalNewlineDecoder
        ):
            return behind if isinstance(behind, str) else None
    return None
