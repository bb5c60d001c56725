"""Gives each record its random generator.  The twin of ``gristmill._hot.draw``."""

from __future__ import annotations

import numpy as np


class Draws:
    """Random generators of records.

    Args:
        seed: The sampler's seed. ``at(index)`` is in the first state of
            ``np.random.Generator(np.random.Philox(key=seed + index))``.
    """

    def __init__(self, seed: int) -> None:
        self.seed = int(seed)

    def at(self, index: int) -> np.random.Generator:
        """Return the generator of the record with this global index."""
        return np.random.Generator(np.random.Philox(key=self.seed + index))
