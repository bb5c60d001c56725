"""Cuts Gristmill's own frames from the traceback of an exception of the user's code."""

from __future__ import annotations

import pathlib
import sys
import types
from collections.abc import Iterator

from gristmill.config import config

NOTE = (
    "Gristmill's own frames were cut from this traceback. To see them:"
    " gristmill.config.update('py_traceback_filtering', 'off')."
)
WHOLE = (
    "{}\n\nThe traceback above is whole. From the one below, Gristmill's own frames"
    " were cut."
)
PACKAGE = str(pathlib.Path(__file__).resolve().parent.parent) + "/"
# Where Cython says that a compiled function is.
COMPILED = ("gristmill/_hot/", "gristmill/_core/")


class FullTraceback(Exception):
    """Keeps the traceback that was cut, as the cause of the exception it is of."""


def cut(error: BaseException) -> None:
    """Cut the traceback of an exception, as the setting `py_traceback_filtering` says.

    It was caught in a frame of Gristmill's.  The frame that raised it stays, whosever
    that is.
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
    entries = list(_entries(whole))
    own = {entry for entry in entries[:-1] if _is_own(entry.tb_frame)}
    # The first one is where it was caught, which is there again when it goes on.
    if not own - {*entries[:1]}:
        return
    if mode == "tracebackhide":
        for entry in own:
            entry.tb_frame.f_locals["__tracebackhide__"] = True
        return
    left: types.TracebackType | None = None
    for entry in reversed(entries):
        if entry not in own:
            place = (entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
            left = types.TracebackType(left, *place)
    error.__traceback__ = left
    if mode == "remove_frames":
        error.__cause__ = FullTraceback(WHOLE.format(error)).with_traceback(whole)
    elif NOTE not in getattr(error, "__notes__", ()):
        # First, since the last note says most of what happened.
        error.__notes__ = [NOTE, *getattr(error, "__notes__", ())]


def _is_own(frame: types.FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith((PACKAGE, *COMPILED))


def _entries(whole: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while whole is not None:
        yield whole
        whole = whole.tb_next
