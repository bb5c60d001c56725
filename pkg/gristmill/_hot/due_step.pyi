from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

class DueStep:
    index: int
    progress: int
    stopped: bool
    def __init__(
        self,
        parts: Iterable[Iterator[Any]],
        count_tokens: Callable[[Any], int] | None,
        field: str | None,
        is_plain: bool,
        by_tokens: bool,
        progress_by_tokens: bool,
        drops: bool,
        max_empty: int,
        name_of: Callable[[int], str],
    ) -> None: ...
    @property
    def elements(self) -> list[int]: ...
    @property
    def tokens(self) -> list[int]: ...
    @property
    def ended(self) -> list[bool]: ...
    @property
    def is_counting(self) -> bool: ...
    def set_counts(
        self, elements: Sequence[int], tokens: Sequence[int], ended: Sequence[bool]
    ) -> None: ...
    def set_shares(
        self, weights: Sequence[float], leads: Sequence[float], bases: Sequence[int]
    ) -> None: ...
    def take(self) -> Any: ...
