from typing import final

@final
class SlotView:
    def __new__(cls, slot: int) -> SlotView: ...
