"""Iterators over a torch loader, with workers and without; begin with `base.py`."""

from __future__ import annotations

from typing import Any

from gristmill._torch.iterators.auto_workers import AutoCount as AutoCount
from gristmill._torch.iterators.auto_workers import (
    AutoMultiProcessIterator as AutoMultiProcessIterator,
)
from gristmill._torch.iterators.base import LoaderIterator as LoaderIterator
from gristmill._torch.iterators.multi_process import (
    MultiProcessIterator as MultiProcessIterator,
)
from gristmill._torch.iterators.single_process import (
    SingleProcessIterator as SingleProcessIterator,
)


def iterate(loader: Any) -> LoaderIterator:
    """Return an iterator over a loader, with workers if it has some."""
    kind = MultiProcessIterator if loader.num_workers else SingleProcessIterator
    return kind(loader)


LoaderIterator._iterate = iterate
