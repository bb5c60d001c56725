"""Sends an exception of the user's code from a worker to the parent.

Its type, arguments, notes and frames are sent, so the traceback in the parent ends in
the user's own function, as if that had run in the parent.
"""

from __future__ import annotations

import ast
import itertools
import pickle
import types
from typing import Any, NamedTuple

from gristmill._engine.tracebacks import entries_of, find_own, shows_own
from gristmill._hot.error_location import as_failure

# The note on an exception from unpickling, which only the parent can raise.
RECEIVING = "while unpickling an output of a worker in the loader's process"
# The most exceptions in a chain of causes that are sent.
MAX_LINKS = 16


class Frame(NamedTuple):
    """A frame of a traceback.

    `last_line` and the columns, in bytes, are None without this information.
    `is_own` is true if the code is Gristmill's and did not raise the exception.
    """

    filename: str
    name: str
    line: int
    last_line: int | None
    column: int | None
    last_column: int | None
    is_own: bool


def pack_failure(error: BaseException, worker: int) -> bytes:
    """Pack the parts of an exception and its causes that can be sent.

    Causes are explicit ones, else the context that a traceback would show.
    """
    # For each exception: its pickle, text, frames and notes, and whether the next one
    # is its explicit cause.
    packed: list[tuple[bytes | None, str, list[Frame], list[str], bool]] = []
    link: BaseException | None = as_failure(error, f"code in worker {worker}")
    while link is not None and len(packed) < MAX_LINKS:
        notes = list(getattr(link, "__notes__", []))
        if not packed:
            notes.append(f"in worker {worker}")
        text, frames, has_cause = _text(link), _frames(link), link.__cause__ is not None
        packed.append((_pickle_exception(link), text, frames, notes, has_cause))
        context = None if link.__suppress_context__ else link.__context__
        link = link.__cause__ or context
    return pickle.dumps(packed, 5)


def unpack_failure(data: bytes) -> BaseException:
    """Return the packed exception with its notes, frames and causes.

    A RuntimeError with its text replaces each exception that was not pickled, or cannot
    be unpickled here.
    """
    error: BaseException | None = None
    for pickled, text, frames, notes, has_cause in reversed(pickle.loads(data)):
        cause, error = error, _rebuild(pickled, text)
        error.__notes__ = notes
        error = error.with_traceback(_traceback(frames))
        error.__context__ = cause  # Also if it was the explicit cause.
        if has_cause:
            error.__cause__ = cause
    assert error is not None
    return error


def _frames(error: BaseException) -> list[Frame]:
    entries = list(entries_of(error.__traceback__))
    own = find_own([entry.tb_frame.f_code.co_filename for entry in entries])
    return [_frame(*pair) for pair in zip(entries, own, strict=False)]


def _frame(entry: types.TracebackType, is_own: bool) -> Frame:
    code, line = entry.tb_frame.f_code, entry.tb_lineno or 1
    # `tb_lasti` is in bytes, and each code unit of 2 bytes has a position.
    positions = itertools.islice(code.co_positions(), max(entry.tb_lasti, 0) // 2, None)
    _, last_line, column, last_column = next(positions, (None,) * 4)
    return Frame(
        code.co_filename, code.co_name, line, last_line, column, last_column, is_own
    )


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__qualname__}: {error}"
    except Exception:
        return f"{type(error).__qualname__} (it cannot be printed)"


def _pickle_exception(error: BaseException) -> bytes | None:
    """Return a pickle that loads as an equal exception, or None if there is none."""
    from gristmill._base import open_files  # Slow to import.

    kind, arguments = type(error), error.args
    attributes = {k: v for k, v in vars(error).items() if k != "__notes__"}
    # Try the exception's own pickling first, since some have more state than arguments
    # and attributes.  It calls `__init__`, which may fail or change the arguments.
    for plan in (
        error,
        _Rebuilder(kind, arguments, attributes),
        _Rebuilder(kind, arguments, {}),
    ):
        try:
            data = open_files.dumps(plan)
            copy = pickle.loads(data)
            if type(copy) is kind and _text(copy) == _text(error):
                return data
        except Exception:
            continue
    return None


class _Rebuilder:
    """Unpickles as an exception with a given class, arguments and attributes."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_without_init, self._parts


def _make_without_init(
    kind: type[BaseException], arguments: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    """Make an exception without calling `__init__`, which may have other arguments."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


def _rebuild(pickled: bytes | None, text: str) -> BaseException:
    if pickled is not None:
        try:
            error: BaseException = pickle.loads(pickled)
            return error
        except Exception as failure:
            text += f"(it could not be unpickled here: {failure!r})"
    return RuntimeError(f"{text.strip()} (the exception could not be pickled)")


def _traceback(frames: list[Frame]) -> types.TracebackType | None:
    """Return a traceback that shows `frames`, outermost first.

    Gristmill's own frames are left out, unless the setting `py_traceback_filtering`
    shows them, or the frame raised the exception.
    """
    chain: types.TracebackType | None = None
    for frame in reversed(frames):
        if frame.is_own and not shows_own():
            continue
        try:
            exec(
                _raising_code(frame),
                {"__name__": frame.name, "__file__": frame.filename},
            )
        except RuntimeError as error:
            raised = error.__traceback__
            assert raised is not None and raised.tb_next is not None
            entry = raised.tb_next
            chain = types.TracebackType(
                chain, entry.tb_frame, entry.tb_lasti, frame.line
            )
    return chain


def _raising_code(frame: Frame) -> types.CodeType:
    """Return code that raises at a frame's place; tracebacks need real frames."""
    tree = ast.parse("raise RuntimeError")
    # Column -1 means no columns, so tracebacks do not mark a part of the line.
    last_line, column, last_column = frame.line, -1, -1
    if frame.last_line and frame.column is not None and frame.last_column is not None:
        end = frame.last_line, frame.last_column
        if (frame.line, frame.column) <= end:
            last_line, column, last_column = end[0], frame.column, end[1]
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno, node.end_lineno = frame.line, last_line
            node.col_offset, node.end_col_offset = column, last_column
    return compile(tree, frame.filename, "exec").replace(co_name=frame.name)
