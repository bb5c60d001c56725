"""The random generators of a process, as something that may pass through JSON."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def digits(state: torch.Tensor) -> str:
    """The state of a generator of torch's as hexadecimal digits."""
    return bytes(state.numpy()).hex()


def from_digits(found: str) -> torch.Tensor:
    """The state of which `digits` made digits."""
    return torch.frombuffer(bytearray.fromhex(found), dtype=torch.uint8)


def states() -> dict[str, Any]:
    """Where this process's torch, Python and NumPy draw from."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002 (users draw from it)
    return {
        "torch": digits(torch.get_rng_state()),
        "random": random.getstate(),
        "numpy": [name, np.asarray(keys).tolist(), *rest],
    }


def restore(found: dict[str, Any]) -> None:
    """Let them draw from where `states` has found them."""
    torch.set_rng_state(from_digits(found["torch"]))
    version, numbers, gauss = found["random"]
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state(tuple(found["numpy"]))  # noqa: NPY002
