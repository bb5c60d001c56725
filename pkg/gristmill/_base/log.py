"""Gristmill's log, without the cost of importing `logging` where nothing is said."""

from __future__ import annotations

from typing import Any


def info(text: str, *args: Any) -> None:
    """Log what is good to know; `text` takes `args` by %."""
    _logger().info(text, *args, stacklevel=2)


def warning(text: str, *args: Any) -> None:
    """Log a warning; `text` takes `args` by %."""
    _logger().warning(text, *args, stacklevel=2)


def error(text: str, *args: Any) -> None:
    """Log an error; `text` takes `args` by %."""
    _logger().error(text, *args, stacklevel=2)


def show(text: str) -> None:
    """Log what the user asked to see; on standard error where nobody reads the log.

    In Colab, whose log is out of sight, it is printed as well.
    """
    import logging
    import sys

    logger = logging.getLogger("gristmill")
    heard = logger.isEnabledFor(logging.INFO) and logger.hasHandlers()
    if heard:
        logger.info("%s", text, stacklevel=2)
    if "google.colab" in sys.modules:
        print(text)
    elif not heard:
        print(text, file=sys.stderr)


def _logger() -> Any:
    import logging

    return logging.getLogger("gristmill")
