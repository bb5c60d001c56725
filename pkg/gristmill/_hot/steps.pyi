from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Indices
from gristmill._hot.draw import OpDraws

WINDOW: int

MAP: int
FILTER: int
MAP_WITH_INDEX: int
RANDOM_MAP: int

# The kind, the call, the function that is called on failure, draws of a random map.
_Call = tuple[int, Callable[..., Any], Callable[[Exception, int], None], OpDraws | None]

def apply(
    calls: list[_Call],
    elements: list[Any],
    indices: Indices,
    out: list[Any] | None = None,
) -> list[Any]: ...
def scatter(part: list[Any], places: npt.NDArray[np.int64], out: list[Any]) -> None: ...
def take(elements: Iterator[Any], count: int) -> list[Any]: ...

class Stage:
    def __iter__(self) -> Any: ...

class Step(Stage):
    counter: int
    def __init__(self, elements: Iterator[Any], call: Callable[..., Any]) -> None: ...
    def __next__(self) -> Any: ...

class MapStep(Step): ...
class FilterStep(Step): ...
class MapWithIndexStep(Step): ...

class RandomMapStep(Step):
    def __init__(
        self,
        elements: Iterator[Any],
        call: Callable[[Any, np.random.Generator], Any],
        draws: OpDraws,
    ) -> None: ...

class MixStep(Stage):
    index: int
    stopped: bool
    def __init__(self, parts: Iterable[Iterator[Any]]) -> None: ...
    def __next__(self) -> Any: ...

class Turns(Stage):
    places: list[Any]
    turn: int
    def __init__(self, places: int) -> None: ...
    def __next__(self) -> Any: ...

class Feed(Stage):
    given: int
    @property
    def keeps_absent(self) -> bool: ...
    def __init__(self, keep_absent: bool) -> None: ...
    def __next__(self) -> Any: ...
    def ahead(self) -> int: ...
    def seek(self, given: int) -> None: ...
    def offer(self, block: list[Any]) -> None: ...
