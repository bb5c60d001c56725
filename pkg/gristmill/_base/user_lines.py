"""Finds the user's line that called Gristmill."""

from __future__ import annotations

import os
import sys
import warnings

# The path of Gristmill's package folder, with a final slash.
PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + "/"


def warn_user(text: str, *, also_skipped: str = PACKAGE) -> None:
    """Warn at the innermost line that is outside of Gristmill.

    Args:
        text: The warning.
        also_skipped: The path of another folder whose lines are skipped.
    """
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_code.co_filename.startswith((PACKAGE, also_skipped)):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
