"""Runs the top level of the main program again, like `multiprocessing`'s spawn.

Workers then have the settings, registered classes and patched modules of the program.
A program without ``if __name__ == "__main__":`` is not run again, because it would
iterate its loaders again.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import process
from types import FrameType
from typing import NamedTuple

# Programs that run the user's code.  Their own top level makes no user settings.
_RUNNERS = {"cProfile", "default_worker", "ipykernel_launcher", "ipython", "pytest"}
_GUARDS = {"__name__ == '__main__'", "'__main__' == __name__"}

# The description of a main program is passed among the modules that a launcher imports.
# It is split into parts, since the system limits the length of one argument.
_MARK = "main program: "
_PART_CHARACTERS = 60_000

# Paths of main programs that have iterated a loader outside of their guard.
_unguarded: set[str] = set()

# In the user's process.


def description() -> tuple[str, ...]:
    """Return the description with which a launcher runs the main program, in parts.

    The result is empty if the program cannot be run again: it has no file or no guard,
    it has iterated a loader outside of its guard, or it is one of `_RUNNERS`.
    """
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    path = getattr(main, "__file__", None)
    if not isinstance(path, str) or _stem(path) in _RUNNERS:
        return ()
    if name is not None and name.rpartition(".")[2] == "__main__":
        return ()  # A folder, a package or an archive.  Spawn skips these, too.
    first_directory: str = process.ORIGINAL_DIR or ""  # type: ignore[attr-defined]
    path = os.path.normpath(os.path.join(first_directory, path))
    guarded_lines = _guarded_lines(path)
    line = _line_within(vars(main))
    if line is not None and not any(line in lines for lines in guarded_lines):
        _unguarded.add(path)
    if not guarded_lines or path in _unguarded:
        return ()
    # A key of the dict for `spawn.prepare`, and its value; see `run`.
    entry = ("init_main_from_path", path)
    if name is not None:
        entry = ("init_main_from_name", name)
    text = json.dumps([*entry, [str(part) for part in getattr(sys, "argv", [""])]])
    starts = range(0, len(text), _PART_CHARACTERS)
    return tuple(_MARK + text[start : start + _PART_CHARACTERS] for start in starts)


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _line_within(names: dict[str, object]) -> int | None:
    """Return the line that a module executes in this thread, or None.

    ``names`` are the module's globals.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is names and frame.f_code.co_name == "<module>":
            return frame.f_lineno
        frame = frame.f_back
    return None


@functools.cache
def _guarded_lines(path: str) -> tuple[range, ...]:
    """Return the lines of a file that run only in the main program.

    Returns an empty tuple if there is no guard, or if the file cannot be parsed.
    """
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple(_guarded_in(tree.body))


def _guarded_in(statements: Sequence[ast.stmt]) -> Iterator[range]:
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(statement, ast.If) and _is_guard(statement.test):
            last = statement.body[-1]
            yield range(statement.body[0].lineno, (last.end_lineno or last.lineno) + 1)
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _guarded_in(getattr(statement, field, ()))


def _is_guard(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(map(_is_guard, test.values))
    return ast.unparse(test) in _GUARDS


# In the launcher and in workers.


class Outcome(NamedTuple):
    """The result of running a main program in a launcher.

    Attributes:
        in_workers: Whether each worker must run the program, since it starts threads.
        failure: The traceback of the exception that the program raised, or "".
    """

    in_workers: bool = False
    failure: str = ""


def split_description(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the description among arguments as one text, and the other arguments."""
    parts = [text.removeprefix(_MARK) for text in arguments if text.startswith(_MARK)]
    return "".join(parts), [text for text in arguments if not text.startswith(_MARK)]


def run(text: str) -> None:
    """Run the top level of the program with this description.

    Raises:
        BaseException: The program raised it.  It has a note.
    """
    # Slow to import.
    from multiprocessing import spawn

    from gristmill._workers.processes import leave_signals_to_parent

    method, entry, arguments = json.loads(text)
    sys.argv[:] = arguments
    try:
        spawn.prepare({method: entry})
    except BaseException as error:
        error.add_note(
            f"Workers run the top level of {entry} again, as multiprocessing's spawn"
            ' does, except for the code under `if __name__ == "__main__":`. Put code'
            " that must not run again there."
        )
        raise
    finally:
        leave_signals_to_parent()  # The program may have set handlers.
