from typing import final

import numpy as np

@final
class Draws:
    def __init__(self, seed: int) -> None: ...
    @property
    def seed(self) -> int: ...
    def at(self, index: int) -> np.random.Generator: ...
