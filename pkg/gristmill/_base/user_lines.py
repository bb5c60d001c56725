"""Finds the user's line that called Gristmill."""

from __future__ import annotations

import os
import sys
import warnings

# The folder of Gristmill's files.
PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + "/"


def warn_user(text: str, *, passing: str = PACKAGE) -> None:
    """Warn at the innermost line that is outside of Gristmill.

    Args:
        text: The warning.
        passing: Another folder whose lines are passed over.
    """
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_code.co_filename.startswith((PACKAGE, passing)):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
