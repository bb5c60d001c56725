"""The modules that hold the nodes that datasets' methods make, imported when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill._dataset import apply as apply
    from gristmill._dataset import batch as batch
    from gristmill._dataset import filter as filter
    from gristmill._dataset import map as map
    from gristmill._dataset import mix as mix
    from gristmill._dataset import order as order
    from gristmill._dataset import process_prefetch as process_prefetch
    from gristmill._dataset import seed as seed
    from gristmill._dataset import source as source
    from gristmill._dataset import to_iter as to_iter
    from gristmill._dataset import with_options as with_options
    from gristmill._dataset import zip as zip

_MODULES = frozenset(
    [
        "apply",
        "batch",
        "filter",
        "map",
        "mix",
        "order",
        "process_prefetch",
        "seed",
        "source",
        "to_iter",
        "with_options",
        "zip",
    ]
)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = importlib.import_module(f"gristmill._dataset.{name}")
    return found
