"""Restores the state of the process's global random generators."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Restore the state of Python's, NumPy's and an imported torch's generators.

    They are restored when the context ends, also if it raises.
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
