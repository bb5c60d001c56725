from typing import final

@final
class SlotView:
    def __new__(cls, slot: int) -> SlotView: ...
    def slice(self, address: int, nbytes: int) -> SlotSlice: ...

@final
class SlotSlice:
    def __buffer__(self, flags: int, /) -> memoryview: ...
