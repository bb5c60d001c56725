"""Pickles code objects with the name and the lines of the file that they come from.

cloudpickle leaves the name out, so that tracebacks, warnings and `inspect.getsource`
find no lines in another process.
"""

from __future__ import annotations

import linecache
import types
from typing import Any

import cloudpickle

Lines = list[str]


def reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    """Reduce a code object for pickling."""
    make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    filename = code.co_filename
    return _code_of_file, (make, arguments, filename, _lines_without_file(filename))


def _code_of_file(
    make: type[types.CodeType],
    arguments: tuple[Any, ...],
    filename: str,
    lines: Lines | None,
) -> types.CodeType:
    if lines is not None and filename not in linecache.cache:
        size = sum(map(len, lines))
        linecache.cache[filename] = (size, None, lines, filename)
    return make(*arguments).replace(co_filename=filename)


def _lines_without_file(filename: str) -> Lines | None:
    """Return the lines of a notebook's cell; None if other processes can read them.

    The returned list is the one in `linecache`, so that a pickle contains it only once.
    """
    entry = linecache.cache.get(filename)
    if entry is None or len(entry) == 1:  # An entry of length 1 has not been read yet.
        return None
    _, modified_s, lines, _ = entry
    return lines if modified_s is None else None
