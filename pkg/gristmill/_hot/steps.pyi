from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._hot.draw import OpDraws

WINDOW: int

_Failed = Callable[[Exception, int], None]

def map_block(
    call: Callable[[Any], Any],
    elements: list[Any],
    indices: npt.NDArray[np.int64],
    failed: _Failed,
) -> list[Any]: ...
def filter_block(
    call: Callable[[Any], Any],
    elements: list[Any],
    indices: npt.NDArray[np.int64],
    failed: _Failed,
) -> list[Any]: ...
def map_with_index_block(
    call: Callable[[int, Any], Any],
    elements: list[Any],
    indices: npt.NDArray[np.int64],
    failed: _Failed,
) -> list[Any]: ...
def random_map_block(
    call: Callable[[Any, np.random.Generator], Any],
    elements: list[Any],
    indices: npt.NDArray[np.int64],
    draws: OpDraws,
    failed: _Failed,
) -> list[Any]: ...
def scatter(part: list[Any], places: npt.NDArray[np.int64], out: list[Any]) -> None: ...
def take(elements: Iterator[Any], count: int) -> list[Any]: ...

class Dropping: ...

class Step:
    def __init__(self, elements: Iterator[Any], call: Callable[..., Any]) -> None: ...
    def __iter__(self) -> Any: ...

class MapStep(Step):
    def __next__(self) -> Any: ...

class FilterStep(Dropping):
    def __init__(self, elements: Iterator[Any], call: Callable[[Any], Any]) -> None: ...
    def __iter__(self) -> Any: ...
    def __next__(self) -> Any: ...

class MapWithIndexStep(Step):
    counter: int
    def __next__(self) -> Any: ...

class RandomMapStep(Step):
    counter: int
    def __init__(
        self,
        elements: Iterator[Any],
        call: Callable[[Any, np.random.Generator], Any],
        draws: OpDraws,
    ) -> None: ...
    def __next__(self) -> Any: ...

class MixStep:
    index: int
    stopped: bool
    def __init__(self, parts: Iterable[Iterator[Any]]) -> None: ...
    def __iter__(self) -> Any: ...
    def __next__(self) -> Any: ...

class Feed(Dropping):
    given: int
    def __init__(self, keep_absent: bool) -> None: ...
    def __iter__(self) -> Any: ...
    def __next__(self) -> Any: ...
    def ahead(self) -> int: ...
    def seek(self, given: int) -> None: ...
