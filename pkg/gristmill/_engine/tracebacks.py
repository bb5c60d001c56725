"""Cuts Gristmill's own frames from the traceback of an exception of the user's code."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence

from gristmill._base.user_lines import PACKAGE
from gristmill.config import config

NOTE = (
    "Gristmill's own frames were cut from this traceback. To see them:"
    " gristmill.config.update('py_traceback_filtering', 'off')."
)
WHOLE = (
    "{}\n\nThe traceback above is whole. From the one below, Gristmill's own frames"
    " were cut."
)


# Where Cython says that a compiled function is.
COMPILED = ("gristmill/_hot/", "gristmill/_core/")
# The end of the file whose frames wait for threads of Gristmill's.
FUTURES = "/concurrent/futures/_base.py"


class FullTraceback(Exception):
    """Keeps the traceback that was cut, as the cause of the exception it is of."""


def cut(error: BaseException, noted: bool = True) -> None:
    """Cut the traceback of an exception, as the setting `py_traceback_filtering` says.

    It was caught in a frame of Gristmill's.  The frame that raised it stays, even if
    it is Gristmill's.  With `noted`, a note says that frames were cut.
    """
    mode = config.py_traceback_filtering
    if mode == "auto":
        # This process may be IPython's, or a notebook's, or one that only imports it;
        # IPython leaves frames out by itself that ask for it.
        found = sys.modules.get("IPython")
        asked = found is not None and found.get_ipython() is not None
        mode = "tracebackhide" if asked else "quiet_remove_frames"
    if mode == "off" or isinstance(error, StopIteration):
        return
    whole = error.__traceback__
    entries = list(entries_of(whole))
    own = _own(entries)
    if mode == "tracebackhide":
        for entry in own:
            entry.tb_frame.f_locals["__tracebackhide__"] = True
        return
    error.__traceback__ = _without(own, entries)
    # The first one is where it was caught, which is not worth a note.
    if not own - {*entries[:1]}:
        return
    if mode == "remove_frames":
        if not isinstance(error.__cause__, FullTraceback):
            full = FullTraceback(WHOLE.format(error)).with_traceback(whole)
            full.__cause__, full.__context__ = error.__cause__, error.__context__
            error.__cause__ = full
    elif noted and NOTE not in getattr(error, "__notes__", ()):
        # First, since the last note says most of what happened.
        error.__notes__ = [NOTE, *getattr(error, "__notes__", ())]


def shown(whole: types.TracebackType | None) -> types.TracebackType | None:
    """Return the traceback of which a worker makes a text."""
    entries = list(entries_of(whole))
    return whole if shows_own() else _without(_own(entries), entries)


def shows_own() -> bool:
    """Return whether the setting shows Gristmill's own frames somewhere."""
    return config.py_traceback_filtering in ("off", "remove_frames")


def find_own(filenames: Sequence[str]) -> list[bool]:
    """Return for each file of a traceback's frames whether its code is Gristmill's.

    The last frame raised, so it counts as the user's.
    """
    found: list[bool] = []
    for filename in filenames[:-1]:
        waits = filename.endswith(FUTURES) and bool(found) and found[-1]
        found.append(waits or filename.startswith((PACKAGE, *COMPILED)))
    return [*found, False]


def _own(entries: list[types.TracebackType]) -> set[types.TracebackType]:
    names = [entry.tb_frame.f_code.co_filename for entry in entries]
    found = zip(entries, find_own(names), strict=False)
    return {entry for entry, is_own in found if is_own}


def _without(
    own: set[types.TracebackType], entries: list[types.TracebackType]
) -> types.TracebackType | None:
    left: types.TracebackType | None = None
    for entry in reversed(entries):
        if entry not in own:
            place = (entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
            left = types.TracebackType(left, *place)
    return left


def entries_of(
    whole: types.TracebackType | None,
) -> Iterator[types.TracebackType]:
    """Yield the entries of a traceback, outermost first."""
    while whole is not None:
        yield whole
        whole = whole.tb_next
