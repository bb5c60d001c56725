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


def cut(error: BaseException) -> bool:
    """Cut the traceback of an exception, as the setting `py_traceback_filtering` says.

    The frame that raised it stays, whosever it is.

    Args:
        error: The exception, caught in a frame of Gristmill's.

    Returns:
        Whether there was something to cut.
    """
    mode = config.py_traceback_filtering
    if mode == "auto":
        # IPython leaves frames out by itself that ask for it.
        mode = "tracebackhide" if _in_ipython() else "quiet_remove_frames"
    if mode == "off" or isinstance(error, StopIteration):
        return False
    whole = error.__traceback__
    entries = list(_entries(whole))
    own = {entry for entry in entries[:-1] if _is_own(entry.tb_frame)}
    # The first one is where it was caught, which is there again when it goes on.
    if not own - {*entries[:1]}:
        return False
    if mode == "tracebackhide":
        for entry in own:
            entry.tb_frame.f_locals["__tracebackhide__"] = True
        return False
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
    return True


def _in_ipython() -> bool:
    """Whether this process is IPython's, or a notebook's: others may import it."""
    found = sys.modules.get("IPython")
    return found is not None and found.get_ipython() is not None


def _is_own(frame: types.FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith((PACKAGE, *COMPILED))


def _entries(whole: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while whole is not None:
        yield whole
        whole = whole.tb_next
