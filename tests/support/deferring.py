"""Transforms that leave their work to the batch, as those of images do."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from typing import Any

import numpy as np

from gristmill._base.deferred import Deferred
from gristmill.errors import CorruptRecord
from gristmill.transforms import Map, RandomMap

# Of each batch that was made here: the thread, and how many it might use.
made_by: list[tuple[str, int]] = []
BAD = b"bad"
# Computed as one of a batch it kills the process.
DEADLY = b"deadly"


class Task(Deferred):
    """Bytes to be decoded, and what is added to them."""

    __slots__ = ("added", "data")

    def __init__(self, data: bytes, added: int = 0) -> None:
        self.data = data
        self.added = added

    def array(self) -> Any:
        if self.data.startswith(BAD):
            raise CorruptRecord(f"{self.data!r} is bad")
        return np.frombuffer(self.data, np.uint8) + np.uint8(self.added)

    def stack(self, column: list[Any], alloc: Any, threads: int) -> Any:
        made_by.append((threading.current_thread().name, threads))
        width = len(self.data)
        out = (alloc or np.empty)((len(column), width), np.dtype(np.uint8))
        for row, task in zip(out, column, strict=True):
            if type(task) is not Task or len(task.data) != width:
                raise ValueError("the tasks differ")
            if task.data.startswith(DEADLY):
                os.kill(os.getpid(), signal.SIGKILL)
            row[:] = task.array()
        return out


def at(key: Any, element: Any, function: Any) -> Any:
    """The element with what a function makes of its leaf at a key."""
    if key is None:
        return function(element)
    if isinstance(element, tuple):
        changed = list(element)
        changed[key] = function(element[key])
        return tuple(changed)
    return {**element, key: function(element[key])}


class Decode(Map):
    """Bytes to an array; those that begin with `BAD` are corrupt."""

    def __init__(self, key: Any = None) -> None:
        self.key = key

    def map(self, element: Any) -> Any:
        return at(self.key, element, lambda data: Task(data).array())

    def defer(self, element: Any) -> Any:
        return at(self.key, element, Task)


class AddRandom(RandomMap):
    """An array plus a random number."""

    def __init__(self, key: Any = None) -> None:
        self.key = key

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        added = np.uint8(rng.integers(100))
        return at(self.key, element, lambda array: array + added)

    def defer(self, element: Any, rng: np.random.Generator) -> Any:
        added = int(rng.integers(100))
        return at(self.key, element, lambda task: Task(task.data, task.added + added))


class EagerDecode(Decode):
    """The same, one by one: what a subclass changes is not deferred."""

    def map(self, element: Any) -> Any:
        return super().map(element)


class EagerAddRandom(AddRandom):
    """The same, one by one."""

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return super().random_map(element, rng)


class Pass(Map):
    """Somebody's own step."""

    def map(self, element: Any) -> Any:
        return element


def records(count: int, bad: tuple[int, ...] = ()) -> list[bytes]:
    """Bytes of 8, of which some are corrupt."""
    made = [bytes((3 * i + k) % 256 for k in range(8)) for i in range(count)]
    for number in bad:
        made[number] = BAD + bytes([number]) + b"...."
    return made


def in_form(form: str, record: bytes, label: int) -> tuple[Any, Any]:
    """An element of a form, and the key of its bytes."""
    if form == "dict":
        return {"label": label, "image": record}, "image"
    if form == "tuple":
        return (label, record), 1
    return record, None


def steps(eager: bool, key: Any) -> tuple[Map, RandomMap]:
    """The two steps; `eager` ones do the same one by one."""
    if eager:
        return EagerDecode(key), EagerAddRandom(key)
    return Decode(key), AddRandom(key)


def told(value: Any) -> str:
    """The text of something, with the names of the steps that defer."""
    return str(value).replace("EagerDecode", "Decode").replace("EagerAdd", "Add")


def text_of(output: Any) -> str:
    """The text of a batch; of its large arrays dtype, shape and a digest."""
    if isinstance(output, dict):
        return str({key: text_of(value) for key, value in output.items()})
    if isinstance(output, np.ndarray) and output.size > 100:
        digest = hashlib.sha256(np.ascontiguousarray(output).data).hexdigest()
        return f"{output.dtype} {output.shape} {digest}"
    return told(output)


def given(iterator: Any, most: int = 100) -> list[tuple[str, str]]:
    """What an iterator gives or raises, as text, and its state behind each."""
    found = []
    while len(found) < most:
        try:
            output = text_of(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            notes = [str(note) for note in getattr(error, "__notes__", ())]
            where = [n for n in notes if "worker" not in n and "To see" not in n]
            output = told((type(error), error, *where))
        found.append((output, str(iterator.get_state())))
    return found
