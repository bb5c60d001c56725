"""Random generators by index, for transformations that are not random maps."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from gristmill._base.checks import check_seed_of_draws
from gristmill._base.describing import call_text
from gristmill._hot.draw import restart


class RngPool:
    """Generators that are used again, each set to the draws of one index.

    The generator of an index draws the same whatever was drawn before:
    ``np.random.Generator(np.random.Philox(seed))`` with its counter at
    [0, 0, op_seed, index]. A pool pickles as its seed. Any thread may call.

    Args:
        seed: Whatever ``np.random.Philox`` takes.

    Example:
        >>> pool = RngPool(42)
        >>> rng = pool.acquire_rng(7)
        >>> first = rng.random()
        >>> pool.release_rng(rng)
        >>> pool.acquire_rng(7).random() == first
        True
    """

    def __init__(self, seed: Any) -> None:
        check_seed_of_draws("seed", seed)
        self._seed = seed
        self._free: list[np.random.Generator] = []

    def __reduce__(self) -> tuple[type[RngPool], tuple[Any]]:
        return RngPool, (self._seed,)

    def acquire_rng(
        self, index: SupportsIndex, *, op_seed: SupportsIndex = 0
    ) -> np.random.Generator:
        """Return the generator of an index, which nobody else has.

        Args:
            index: In [0, 2**64).
            op_seed: In [0, 2**64): other draws for the same index.

        Raises:
            OverflowError: An argument is out of range.
        """
        try:
            # One call of a list's method: no other thread takes the same one.
            rng = self._free.pop()
        except IndexError:
            rng = np.random.Generator(np.random.Philox(self._seed))
        restart(rng, index, op_seed)
        return rng

    def __repr__(self) -> str:
        return call_text(self, seed=self._seed)

    def release_rng(self, rng: np.random.Generator) -> None:
        """Give a generator back; do not draw from it any more.

        Args:
            rng: What ``acquire_rng`` of this pool returned.
        """
        self._free.append(rng)
