from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

class _Draws(Protocol):
    def at(self, index: int, /) -> np.random.Generator | None: ...

def reads_together(kind: type) -> bool: ...

READING: str

def measure(
    stage_times_ns: dict[str, int] | None,
    clock: int = 0,
    intervals: list[tuple[str, int, int]] | None = None,
) -> None: ...
def begin() -> int: ...
def end(name: str, start_ns: int) -> bool: ...
def run_block(
    source: Any,
    keys: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int64],
    steps: tuple[tuple[int, Callable[..., Any], str], ...],
    draws: _Draws | None,
    record_address: int,
    elements: list[Any] | None = None,
    out: list[Any] | None = None,
    max_outputs: int = -1,
) -> tuple[list[Any], list[int] | None, int, Exception | None]: ...
