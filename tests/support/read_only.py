"""Read-only arrays, and containers of arrays."""

import collections
import dataclasses
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

Pair = collections.namedtuple("Pair", ["x", "y"])


@dataclasses.dataclass
class Record:
    """An element of a user's class."""

    x: Any
    y: Any = None


def locked(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Make an array read-only."""
    array.setflags(write=False)
    return array


def mapped() -> np.ndarray[Any, Any]:
    """Return an array that views a file."""
    with tempfile.TemporaryFile() as file:
        np.arange(2000.0).tofile(file)
        return np.memmap(file, mode="r")


ARRAYS: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "bytes": lambda: np.frombuffer(b"abcdefgh", np.uint8),
    "many bytes": lambda: np.frombuffer(bytes(40_000), np.int16),
    "picture": lambda: np.asarray(Image.new("RGB", (8, 6))),
    "mapped": mapped,
    "part of mapped": lambda: np.asarray(mapped())[8:800],
    "broadcast": lambda: np.broadcast_to(np.float32(1), (3, 4)),
    "numbers": lambda: locked(np.arange(5.0)),
    "text": lambda: locked(np.array(["a", "bc"])),
    "time": lambda: locked(np.array(["2020-01-01"], "M8[D]")),
    "objects": lambda: locked(np.array([1, "x", None], object)),
    "struct": lambda: locked(np.zeros(3, [("a", "i4"), ("b", "f8")])),
    "0-d": lambda: locked(np.array(3.0)),
    "empty": lambda: locked(np.zeros((0, 3))),
    "fortran": lambda: locked(np.asfortranarray(np.arange(6.0).reshape(2, 3))),
    "strided": lambda: np.frombuffer(bytes(range(16)), np.uint8)[::2],
}


def _in_objects(array: Any) -> Any:
    held = np.empty(2, object)
    held[:] = [array, 1]
    return held


CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda array: [array, 1],
    "dict": lambda array: {"x": array, "y": [array]},
    "named tuple": lambda array: Pair(array, 2),
    "dataclass": lambda array: Record(array, {"deep": (array,)}),
    "objects": _in_objects,
}


def all_elements() -> dict[str, Any]:
    """Return an element with every array in every container."""
    return {
        f"{name} in {container}": put(make())
        for name, make in ARRAYS.items()
        for container, put in CONTAINERS.items()
    }


def writability(thing: Any) -> Any:
    """Describe which arrays of an element are writable."""
    if isinstance(thing, np.ndarray):
        parts = [*map(writability, thing.ravel())] if thing.dtype == object else []
        return thing.flags.writeable, parts
    if dataclasses.is_dataclass(thing):
        return writability(vars(thing))
    if isinstance(thing, dict):
        return {key: writability(value) for key, value in sorted(thing.items())}
    if isinstance(thing, (list, tuple)):
        return [*map(writability, thing)]
    return None
