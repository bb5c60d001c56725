from typing import Any, final

import numpy as np
import numpy.typing as npt

from gristmill._hot.exceptions import SlotTooSmallError as SlotTooSmallError

@final
class SlotWriter:
    def __init__(self, address: int, capacity: int) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def used(self) -> int: ...
    def empty(
        self, shape: int | tuple[int, ...], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]: ...

def encode(
    writer: SlotWriter,
    outputs: list[tuple[Any, npt.NDArray[np.int64], tuple[int, ...]]],
    failure: tuple[bytes, tuple[int, ...]] | None,
) -> int: ...
