from collections.abc import Callable
from typing import Any

from gristmill._base.types import Int64Array
from gristmill._hot.layouts import PackLayout

class RowWriter:
    def __init__(
        self, layout: PackLayout, boundaries: int, extras: list[int]
    ) -> None: ...
    def write(
        self,
        documents: list[Any],
        offsets: Int64Array,
        begins: Int64Array,
        ends: Int64Array,
        lengths: Int64Array,
        extra_lengths: Int64Array | None,
        mismatch: Callable[[int, str, int, int], Exception],
    ) -> list[Any]: ...
    def stack(
        self,
        documents: list[Any],
        offsets: Int64Array,
        begins: Int64Array,
        ends: Int64Array,
        lengths: Int64Array,
        extra_lengths: Int64Array | None,
        mismatch: Callable[[int, str, int, int], Exception],
    ) -> Any: ...
