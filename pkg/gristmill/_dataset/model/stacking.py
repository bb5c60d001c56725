"""Arguments of `batch` without a function."""

from __future__ import annotations

from typing import TypedDict


class Stacking(TypedDict, total=False):
    """Arguments of `batch` without a function: leaves are stacked."""

    drop_remainder: bool
    batch_fn: None
