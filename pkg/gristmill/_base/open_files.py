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

# The most bytes or characters that one read returns.
_CHUNK_LENGTH = 1 << 20


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
            name = None  # The file was detached from its buffer.
        return (
            f"cannot pickle '{kind.__module__}.{kind.__qualname__}' object:"
            f" {path_to(self.file, root) or 'in it'} is the open file {name!r}, which"
            f" another process cannot open at the same position: {self.reason}"
        )


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles like cloudpickle, except for open files."""

    def reducer_override(self, obj: Any) -> Any:
        reduce = _REDUCERS.get(type(obj))
        if reduce is None or obj is sys.stdout or obj is sys.stderr:
            reduced = super().reducer_override(obj)
            if reduced is not NotImplemented and isinstance(obj, type):
                return with_registration(obj, reduced)
            return reduced
        return reduce(obj)

    def dump(self, obj: Any) -> None:
        """Write the pickle of an object.

        Raises:
            TypeError: The object contains an open file that cannot be opened again.
        """
        # tempfile is slow to import.  A program that has not imported it has no
        # temporary files.
        if (tempfile := sys.modules.get("tempfile")) is not None:
            _REDUCERS[tempfile._TemporaryFileWrapper] = _refuse_temporary
        try:
            super().dump(obj)
        except _CannotReopenError as error:
            raise TypeError(error.text(obj)) from None


def dumps(obj: Any, buffer_callback: Callable[[Any], Any] | None = None) -> bytes:
    """Return an object's pickle by `Pickler`, with arrays that load as writable."""
    file = io.BytesIO()
    _MessagePickler(file, 5, buffer_callback).dump(obj)
    return file.getvalue()


class _MessagePickler(Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is np.ndarray:
            return reduce_array(obj)
        return super().reducer_override(obj)


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
    """Return the path and the identity (device, inode) of a file open for reading.

    Raises:
        _CannotReopenError: The file cannot be opened again at the same position.
    """
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
    status = os.fstat(layer.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise _CannotReopenError(file, "it is a pipe, a socket or a device.")
    if not isinstance(layer.name, str | bytes):
        raise _CannotReopenError(
            file, "it was opened by its descriptor, without a name."
        )
    path = os.path.abspath(os.fsdecode(layer.name))
    try:
        identity = _identity(os.stat(path))
    except OSError as error:
        reason = f"it was moved or removed: {path}: {error.strerror}."
        raise _CannotReopenError(file, reason) from None
    if identity != _identity(status):
        raise _CannotReopenError(file, f"{path} was replaced after it was opened.")
    return path, identity


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
        undelivered, decoded_end = _read_undelivered(text)
        text.seek(0)
        newline = _newline(text)
        at_end = decoded_end < 0
        undelivered_count = len(undelivered) if at_end else len(undelivered) - 1
        decoded_count = _count_characters(text, newline, decoded_end)
        text.seek(0)
        to_skip = decoded_count - undelivered_count
        while to_skip:
            to_skip -= len(text.read(min(to_skip, _CHUNK_LENGTH)))
        position = text.tell()
        is_correct = text.read(len(undelivered) + at_end) == undelivered
        text.seek(position)
    except (OSError, UnicodeError) as error:
        raise _CannotReopenError(
            text, f"its position cannot be determined: {error}."
        ) from error
    if not is_correct:
        raise _CannotReopenError(
            text, "its position cannot be determined in a loop over its lines."
        )
    return newline, position


def _read_undelivered(text: io.TextIOWrapper) -> tuple[str, int]:
    """Return the decoded characters that the loop has not received, and their end.

    The end is an offset in bytes.  The text includes one more character, the first that
    is decoded after that offset.  If the file ends before such a character, the offset
    is -1.
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


def _count_characters(text: io.TextIOWrapper, newline: str | None, end: int) -> int:
    """Count the characters in the bytes before `end`, or in all bytes if it is -1."""
    decoder: Any = codecs.getincrementaldecoder(text.encoding)(text.errors or "strict")
    if not newline:
        decoder = io.IncrementalNewlineDecoder(decoder, newline is None)
    buffer: Any = text.buffer
    count, offset = 0, buffer.seek(0)
    while data := buffer.read(
        _CHUNK_LENGTH if end < 0 else min(_CHUNK_LENGTH, end - offset)
    ):
        offset += len(data)
        count += len(decoder.decode(data))
    return count + len(decoder.decode(b"", end < 0))


def _newline(text: io.TextIOWrapper) -> str | None:
    """Return the argument `newline` of a text file.

    REQUIRES: the file's position is 0.
    """
    if not _can_find_newlines():
        raise _CannotReopenError(
            text, "this version of Python does not reveal its argument newline."
        )
    return _find_newline(text)


@functools.cache
def _can_find_newlines() -> bool:
    for newline in (None, "", "\n", "\r", "\r\n"):
        with open(os.devnull, newline=newline) as text:
            text.seek(0)
            if _find_newline(text) != newline:
                return False
    return True


def _find_newline(text: io.TextIOWrapper) -> str | None:
    """Return the str that a text file's referents contain after its decoder, or None.

    CPython stores `newline` there.
    """
    referents = gc.get_referents(text)
    for decoder, next_referent in itertools.pairwise(referents):
        if isinstance(
            decoder, codecs.IncrementalDecoder | io.IncrementalNewlineDecoder
        ):
            return next_referent if isinstance(next_referent, str) else None
    return None
