"""Implementation of sources.SharedMemoryDataSource."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from multiprocessing import shared_memory
from typing import Any

__all__ = ["SharedMemoryDataSource"]

_logger = logging.getLogger("gristmill")


class SharedMemoryDataSource(shared_memory.ShareableList[Any]):
    """Serve a sequence from a named block of shared memory.

    Args:
        elements: int, float, bool, None, or str and bytes of less than 10 MB
            each, to copy to a new block. None attaches to the block `name`.
        name: Name of the block, or None for a new one.

    Raises:
        ValueError: Neither `elements` nor `name` is given.

    Call `unlink` in one process when no process needs the block any more.

    Example:
        >>> source = SharedMemoryDataSource(["a", "b"])
        >>> same = SharedMemoryDataSource(name=source.shm.name)  # In any process.
        >>> list(gristmill.load(same, num_epochs=1))
        ['a', 'b']
        >>> same.close(), source.close(), source.unlink()
        (None, None, None)
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.

    def __init__(
        self, elements: Sequence[Any] | None = None, *, name: str | None = None
    ) -> None:
        if elements is None and name is None:
            raise ValueError("Elements or name must be provided.")
        _logger.info(
            "%s a ShareableList%s",
            "Attaching to" if elements is None else "Creating",
            "" if name is None else f" named {name}",
        )
        super().__init__(elements, name=name)

    def __str__(self) -> str:
        return f"InMemoryDataSource(name={self.shm.name}, len={len(self)})"

    def close(self) -> None:
        """Release this process's view of the block."""
        self.shm.close()

    def unlink(self) -> None:
        """Remove the block once no process views it."""
        self.shm.unlink()

    def __del__(self) -> None:
        # There is no block if the constructor failed.
        with contextlib.suppress(AttributeError):
            del self.shm
