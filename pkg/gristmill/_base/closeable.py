"""The base class of objects that a ``with`` statement closes."""

from __future__ import annotations

import abc
from typing import Self


class Closeable(abc.ABC):
    """A context manager that enters as itself and calls `close` on exit."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
