"""Puts back where the process's global generators draw from."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Have Python's, NumPy's and, if it is imported, torch's draw on as from before.

    What draws from them in between leaves no trace, whether it fails or not.
    """
    torch: Any = sys.modules.get("torch")
    drawn = random.getstate()
    drawn_numpy = np.random.get_state()  # noqa: NPY002 (users draw from it)
    drawn_torch = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(drawn)
        np.random.set_state(drawn_numpy)  # noqa: NPY002
        if drawn_torch is not None:
            torch.set_rng_state(drawn_torch)
