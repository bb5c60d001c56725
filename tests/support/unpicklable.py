"""Objects that one process can pickle and another one cannot unpickle."""

import sys
import types
from collections.abc import Callable
from typing import Any


class TwoArguments(Exception):
    """An exception that pickle recreates with one argument, which is too few."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


class RefusesState:
    """Raises an error when its state is set."""

    def __getstate__(self) -> dict[str, int]:
        return {"version": 1}

    def __setstate__(self, state: dict[str, int]) -> None:
        raise KeyError("no such version")


class Divides:
    """Pickles as a call that fails."""

    def __reduce__(self) -> Any:
        return divmod, (1, 0)


def of_missing_module() -> Any:
    """Return an object of a class whose module exists only in this process."""
    module = types.ModuleType("made_in_a_worker")
    sys.modules[module.__name__] = module
    cls = type("Made", (), {"__module__": module.__name__})
    module.Made = cls  # type: ignore[attr-defined]
    return cls()


UNPICKLABLE: dict[str, Callable[[], Any]] = {
    "two arguments": lambda: TwoArguments("text", 2),
    "state": RefusesState,
    "call": Divides,
    "module": of_missing_module,
}
