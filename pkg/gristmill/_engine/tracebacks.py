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


# The folders of compiled functions in tracebacks.
COMPILED = ("gristmill/_hot/", "gristmill/_core/")
# The end of the path of the file whose frames wait for Gristmill's threads.
FUTURES = "/concurrent/futures/_base.py"


class FullTraceback(Exception):
    """The cause of an exception whose traceback was cut; has the whole traceback."""


def cut_own_frames(error: BaseException, noted: bool = True) -> None:
    """Cut Gristmill's frames from a traceback; see setting `py_traceback_filtering`.

    The exception was caught in a frame of Gristmill's.  The frame that raised it stays,
    even if it is Gristmill's.  If `noted` is true, a note is added if frames were cut.
    In the mode "remove_frames", a `FullTraceback` becomes the cause instead.
    """
    mode = config.py_traceback_filtering
    if mode == "auto":
        # IPython itself leaves out frames with `__tracebackhide__`.  A program may also
        # import IPython without running in it.
        ipython = sys.modules.get("IPython")
        in_ipython = ipython is not None and ipython.get_ipython() is not None
        mode = "tracebackhide" if in_ipython else "quiet_remove_frames"
    if mode == "off" or isinstance(error, StopIteration):
        return
    traceback = error.__traceback__
    entries = list(entries_of(traceback))
    own = _own(entries)
    if mode == "tracebackhide":
        for entry in own:
            entry.tb_frame.f_locals["__tracebackhide__"] = True
        return
    error.__traceback__ = _without(own, entries)
    # The first entry is the frame that caught it, which is not worth a note.
    if not own - {*entries[:1]}:
        return
    if mode == "remove_frames":
        if not isinstance(error.__cause__, FullTraceback):
            full = FullTraceback(WHOLE.format(error)).with_traceback(traceback)
            full.__cause__, full.__context__ = error.__cause__, error.__context__
            error.__cause__ = full
    elif noted and NOTE not in getattr(error, "__notes__", ()):
        # Insert it first, since the last note describes best what happened.
        error.__notes__ = [NOTE, *getattr(error, "__notes__", ())]


def filter_traceback(
    traceback: types.TracebackType | None,
) -> types.TracebackType | None:
    """Return the traceback that a worker prints."""
    entries = list(entries_of(traceback))
    return traceback if shows_own() else _without(_own(entries), entries)


def shows_own() -> bool:
    """Return whether the setting keeps Gristmill's own frames in some traceback."""
    return config.py_traceback_filtering in ("off", "remove_frames")


def find_own(filenames: Sequence[str]) -> list[bool]:
    """Return for each file of a traceback's frames whether its code is Gristmill's.

    The last frame raised, so it counts as the user's.
    """
    is_own: list[bool] = []
    for filename in filenames[:-1]:
        is_waiting = filename.endswith(FUTURES) and bool(is_own) and is_own[-1]
        is_own.append(is_waiting or filename.startswith((PACKAGE, *COMPILED)))
    return [*is_own, False]


def _own(entries: list[types.TracebackType]) -> set[types.TracebackType]:
    names = [entry.tb_frame.f_code.co_filename for entry in entries]
    marked = zip(entries, find_own(names), strict=False)
    return {entry for entry, is_own in marked if is_own}


def _without(
    own: set[types.TracebackType], entries: list[types.TracebackType]
) -> types.TracebackType | None:
    remaining: types.TracebackType | None = None
    for entry in reversed(entries):
        if entry not in own:
            place = (entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
            remaining = types.TracebackType(remaining, *place)
    return remaining


def entries_of(
    traceback: types.TracebackType | None,
) -> Iterator[types.TracebackType]:
    """Yield the entries of a traceback, outermost first."""
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
