"""Lengths of documents, and OLMo-core's packer, for the questions about plans."""

import functools
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness import AtLeast, AtMost, Question

DOCUMENTS = 200_000
CAPACITIES = (2048, 8192)
SIGMA = 1.2


def lengths(documents: int, mean: float = 800) -> np.ndarray:
    """Returns log-normal numbers of tokens, int32 of shape (documents,)."""
    rng = np.random.default_rng(0)
    drawn = rng.lognormal(np.log(mean) - SIGMA**2 / 2, SIGMA, documents)
    return np.maximum(drawn, 1).astype(np.int32)


def pieces(capacity: int) -> np.ndarray:
    """Returns the lengths of documents that are cut where a row would be full."""
    whole = lengths(DOCUMENTS)
    rests = whole % capacity
    full = np.full(np.sum(whole // capacity), capacity, np.int32)
    return np.concatenate([rests[rests > 0], full])


def olmo_core_packer(capacity: int) -> Any:
    """Returns an empty packer of OLMo-core, the optimized best-fit decreasing one."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
    from support import extras

    return extras.olmo_core("utils").InstancePacker(capacity)


def spans(of: np.ndarray) -> np.ndarray:
    """Returns the begins and ends of pieces, as OLMo-core's packer needs them."""
    ends = np.cumsum(of, dtype=np.int64)
    return np.stack([ends - of, ends], axis=1)


def question(
    name: str,
    text: str,
    unit: str,
    measures: dict[str, Callable[..., Any]],
    targets: Callable[[str, str], Sequence[AtLeast | AtMost]],
) -> Question:
    """Returns a question about rows of each capacity, which `measures` get first.

    `targets` get the names of our contestant and of the peer.
    """
    ours, peer = measures
    return Question(
        name=name,
        text=text,
        unit=unit,
        contestants={
            f"{contestant}, {capacity}": functools.partial(measure, capacity)
            for contestant, measure in measures.items()
            for capacity in CAPACITIES
        },
        targets=tuple(
            target
            for capacity in CAPACITIES
            for target in targets(f"{ours}, {capacity}", f"{peer}, {capacity}")
        ),
    )
