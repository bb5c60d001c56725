"""Gives each record its random generator.  The twin of ``gristmill._hot.draw``."""

from __future__ import annotations

from operator import index as as_int
from typing import Any, SupportsIndex

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


def _word(value: SupportsIndex, name: str) -> int:
    """Return a word of the counter."""
    word = as_int(value)
    if not 0 <= word < 2**64:
        raise OverflowError(f"{name} must be in [0, 2**64), but got {value}")
    return word


def restart(
    generator: np.random.Generator, index: SupportsIndex, op_seed: SupportsIndex = 0
) -> None:
    """Set a Philox generator back to the first draw for one index.

    Its key stays and its counter becomes [0, 0, op_seed, index].
    """
    words = [0, 0, _word(op_seed, "op_seed"), _word(index, "index")]
    bits = generator.bit_generator
    if type(bits) is not np.random.Philox:
        raise TypeError(
            f"expected a generator of Philox, but got one of {type(bits).__name__}"
        )
    key = bits.state["state"]["key"]
    bits.state = np.random.Philox(key=key, counter=np.array(words, np.uint64)).state


class OpDraws:
    """Random generators of one operation's elements.

    Args:
        seed: The operation's seed, whatever ``np.random.Philox`` takes. ``at(index)``
            is ``np.random.Generator(np.random.Philox(seed))`` with the counter
            [0, 0, op_seed, index].
        op_seed: In [0, 2**64).
    """

    def __init__(self, seed: Any, op_seed: SupportsIndex = 0) -> None:
        self.op_seed = _word(op_seed, "op_seed")
        self.seed = seed
        np.random.Philox(seed)  # Refuses what is no seed.

    def at(self, index: SupportsIndex) -> np.random.Generator:
        """Return the generator of the element with this index."""
        generator = np.random.Generator(np.random.Philox(self.seed))
        restart(generator, index, self.op_seed)
        return generator
