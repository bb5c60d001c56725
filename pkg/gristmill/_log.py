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


def _logger() -> Any:
    import logging

    return logging.getLogger("gristmill")
