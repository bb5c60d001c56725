from typing import final

@final
class SlotWalk: ...
