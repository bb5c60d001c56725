"""What datasets' methods make: the classes of nodes register themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made", bound=Callable[..., Any])
_BUILDERS: dict[str, Callable[..., Any]] = {}


def builds(*methods: str) -> Callable[[Made], Made]:
    """Register what methods of datasets call, such as ``"MapDataset.batch"``."""

    def register(made: Made) -> Made:
        _BUILDERS.update(dict.fromkeys(methods, made))
        return made

    return register


def build(method: str, *arguments: Any, **named: Any) -> Any:
    """Call what is registered for a method."""
    return _BUILDERS[method](*arguments, **named)
