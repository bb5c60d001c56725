"""Gristmill's log.  `logging` is imported only when something is logged."""

from __future__ import annotations

from typing import Any


def info(text: str, *args: Any) -> None:
    """Log an informational message, `text` % `args`."""
    _logger().info(text, *args, stacklevel=2)


def warning(text: str, *args: Any) -> None:
    """Log a warning, `text` % `args`."""
    _logger().warning(text, *args, stacklevel=2)


def error(text: str, *args: Any) -> None:
    """Log an error, `text` % `args`."""
    _logger().error(text, *args, stacklevel=2)


def show(text: str) -> None:
    """Log output that the user asked for.

    If the log is disabled or has no handlers, print the text to standard error.  In
    Colab, always print it to standard output, since its log is not visible.
    """
    import logging
    import sys

    logger = logging.getLogger("gristmill")
    is_logged = logger.isEnabledFor(logging.INFO) and logger.hasHandlers()
    if is_logged:
        logger.info("%s", text, stacklevel=2)
    if "google.colab" in sys.modules:
        print(text)
    elif not is_logged:
        print(text, file=sys.stderr)


def _logger() -> Any:
    import logging

    return logging.getLogger("gristmill")
