from typing import Any, final

import numpy.typing as npt

@final
class SlotView:
    def __new__(cls, slot: int) -> SlotView: ...
    def array(
        self, shape: tuple[int, ...], dtype: npt.DTypeLike, address: int
    ) -> npt.NDArray[Any]: ...
    def slice(self, address: int, nbytes: int) -> SlotSlice: ...

@final
class SlotSlice:
    def __buffer__(self, flags: int, /) -> memoryview: ...
