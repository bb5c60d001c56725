"""Restores the state of the process's global random generators."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def restore_generators() -> Iterator[None]:
    """Restore the state of Python's, NumPy's and an imported torch's generators.

    They are restored when the context ends, also if it raises.
    """
    torch: Any = sys.modules.get("torch")
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 (users draw from it)
    torch_state = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        if torch_state is not None:
            torch.set_rng_state(torch_state)
