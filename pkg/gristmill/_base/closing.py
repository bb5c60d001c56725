"""What can be closed, and is at the end of a ``with`` statement."""

from __future__ import annotations

import abc
from typing import Self


class Closing(abc.ABC):
    """A context manager that is itself, and ends by `close`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
