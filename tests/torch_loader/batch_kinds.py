"""Kinds of batches that a user's sampler may give, besides lists."""

import array
import collections
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch


class Once:
    """A generator whose repr contains no address."""

    def __init__(self, indices: list[int]) -> None:
        self._indices = (index for index in indices)

    def __repr__(self) -> str:
        return "Once()"

    def __iter__(self) -> Iterator[int]:
        return self._indices


def _range(indices: list[int]) -> range:
    """Return a range, in either direction, with the first and last of the indices."""
    first, last = (indices[0], indices[-1]) if indices else (0, 0)
    step = -2 if last < first else 2
    return range(first, last + step // 2, step)


def _mask(indices: list[int]) -> list[bool]:
    return [number in indices for number in range(max(indices, default=0) + 1)]


def _views(indices: list[int]) -> torch.Tensor:
    """Return a part of a larger tensor, from `torch.Tensor.split`."""
    return torch.tensor([*indices, *range(1000)]).split(len(indices) or 1)[0]


KINDS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "range": _range,
    "set": set,
    "frozenset": frozenset,
    "dict": dict.fromkeys,
    "deque": collections.deque,
    "array": lambda indices: array.array("q", indices),
    "bytes": lambda indices: bytes(map(abs, indices)),
    "text": lambda indices: "".join(map(str, indices)),
    "tensor": lambda indices: torch.tensor(indices, dtype=torch.int64),
    "int32 tensor": lambda indices: torch.tensor(indices, dtype=torch.int32),
    "uint8 tensor": lambda indices: torch.tensor(indices).abs().to(torch.uint8),
    "bfloat16 tensor": lambda indices: torch.tensor(indices, dtype=torch.bfloat16),
    "bool tensor": lambda indices: torch.tensor(_mask(indices)),
    "split tensor": _views,
    "scalar tensor": lambda indices: torch.tensor(len(indices)),
    "tensors": lambda indices: list(torch.tensor(indices)),
    "ndarray": lambda indices: np.array(indices, np.int64),
    "int32 ndarray": lambda indices: np.array(indices, np.int32),
    "bool ndarray": lambda indices: np.array(_mask(indices)),
    "2d ndarray": lambda indices: np.array([indices, indices]),
    "strided ndarray": lambda indices: np.repeat(indices, 2)[::2],
    "numpy ints": lambda indices: list(np.array(indices, np.int64)),
    "bools": _mask,
    "floats": lambda indices: [float(index) for index in indices],
    "nested": lambda indices: [indices, indices],
    "tuples": lambda indices: [(index, index) for index in indices],
    "int": len,
    "slice": lambda indices: slice(0, len(indices)),
    "none": lambda indices: None,
    # These cannot be pickled, so torch's loader with workers hangs.
    "generator": Once,
    "dict keys": lambda indices: dict.fromkeys(indices).keys(),
}
UNPICKLABLE = ("generator", "dict keys")


@dataclasses.dataclass(frozen=True)
class Batches:
    """Makes a sampler from (kind, indices) pairs, like `datasets_zoo.SAMPLERS`."""

    pairs: tuple[tuple[str, tuple[int, ...]], ...]

    def __call__(self, dataset: Any, size: int, generator: Any) -> list[Any]:
        return [KINDS[kind](list(indices)) for kind, indices in self.pairs]
