from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Indices
from gristmill._hot.draw import OpDraws

MAP: int
RANDOM_MAP: int
MAP_WITH_INDEX: int
FILTER: int

# (kind, call, note_failure, draws); see `apply`.
_Call = tuple[int, Callable[..., Any], Callable[[Exception, int], None], OpDraws | None]

def apply(
    calls: list[_Call],
    elements: list[Any],
    indices: Indices,
    out: list[Any] | None = None,
) -> list[Any]: ...
def scatter(part: list[Any], places: npt.NDArray[np.int64], out: list[Any]) -> None: ...
