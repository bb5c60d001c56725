"""Transforms that defer their work to the batch, like those of images."""

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

# For each batch made in this process: the name of the thread that made it, and the
# number of threads that it could use.
batch_threads: list[tuple[str, int]] = []
BAD = b"bad"
# Kills the process when it is computed in a batch.
DEADLY = b"deadly"


class Task(Deferred):
    """Bytes to decode, and a number to add."""

    __slots__ = ("added", "data")

    def __init__(self, data: bytes, added: int = 0) -> None:
        self.data = data
        self.added = added

    def array(self) -> Any:
        if self.data.startswith(BAD):
            raise CorruptRecord(f"{self.data!r} is bad")
        return np.frombuffer(self.data, np.uint8) + np.uint8(self.added)

    def stack(self, column: list[Any], alloc: Any, threads: int) -> Any:
        batch_threads.append((threading.current_thread().name, threads))
        width = len(self.data)
        out = (alloc or np.empty)((len(column), width), np.dtype(np.uint8))
        for row, task in zip(out, column, strict=True):
            if type(task) is not Task or len(task.data) != width:
                raise ValueError("the tasks differ")
            if task.data.startswith(DEADLY):
                os.kill(os.getpid(), signal.SIGKILL)
            row[:] = task.array()
        return out


def apply_at(key: Any, element: Any, function: Any) -> Any:
    """Return the element with `function` applied to its leaf at `key`."""
    if key is None:
        return function(element)
    if isinstance(element, tuple):
        changed = list(element)
        changed[key] = function(element[key])
        return tuple(changed)
    return {**element, key: function(element[key])}


class Decode(Map):
    """Decodes bytes to an array; those that begin with `BAD` are corrupt."""

    def __init__(self, key: Any = None) -> None:
        self.key = key

    def map(self, element: Any) -> Any:
        return apply_at(self.key, element, lambda data: Task(data).array())

    def defer(self, element: Any) -> Any:
        return apply_at(self.key, element, Task)


class AddRandom(RandomMap):
    """Adds a random number to an array."""

    def __init__(self, key: Any = None) -> None:
        self.key = key

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        added = np.uint8(rng.integers(100))
        return apply_at(self.key, element, lambda array: array + added)

    def defer(self, element: Any, rng: np.random.Generator) -> Any:
        added = int(rng.integers(100))
        return apply_at(
            self.key, element, lambda task: Task(task.data, task.added + added)
        )


class EagerDecode(Decode):
    """Decodes one element at a time, because overriding `map` disables deferral."""

    def map(self, element: Any) -> Any:
        return super().map(element)


class EagerAddRandom(AddRandom):
    """Adds random numbers one element at a time."""

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return super().random_map(element, rng)


class Pass(Map):
    """A user's step that changes nothing."""

    def map(self, element: Any) -> Any:
        return element


def records(count: int, bad: tuple[int, ...] = ()) -> list[bytes]:
    """Return `count` records of 8 bytes; those in `bad` are corrupt."""
    contents = [bytes((3 * i + k) % 256 for k in range(8)) for i in range(count)]
    for number in bad:
        contents[number] = BAD + bytes([number]) + b"...."
    return contents


def make_element(form: str, record: bytes, label: int) -> tuple[Any, Any]:
    """Return an element in a form ("dict", "tuple" or other), and its bytes' key."""
    if form == "dict":
        return {"label": label, "image": record}, "image"
    if form == "tuple":
        return (label, record), 1
    return record, None


def steps(eager: bool, key: Any) -> tuple[Map, RandomMap]:
    """Return the two steps; `eager` ones do not defer."""
    if eager:
        return EagerDecode(key), EagerAddRandom(key)
    return Decode(key), AddRandom(key)


def text_without_eager(value: Any) -> str:
    """Return the text of a value, with equal names for eager and deferring steps."""
    return str(value).replace("EagerDecode", "Decode").replace("EagerAdd", "Add")


def text_of(output: Any) -> str:
    """Return the text of a batch, with digests in place of large arrays."""
    if isinstance(output, dict):
        return str({key: text_of(value) for key, value in output.items()})
    if isinstance(output, np.ndarray) and output.size > 100:
        digest = hashlib.sha256(np.ascontiguousarray(output).data).hexdigest()
        return f"{output.dtype} {output.shape} {digest}"
    return text_without_eager(output)


def outputs_of(iterator: Any, most: int = 100) -> list[tuple[str, str]]:
    """Return outputs and errors of an iterator as text, and the state after each."""
    outputs = []
    while len(outputs) < most:
        try:
            output = text_of(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            notes = [str(note) for note in getattr(error, "__notes__", ())]
            # Only with workers, a note names the worker.
            places = [n for n in notes if "worker" not in n and "To see" not in n]
            output = text_without_eager((type(error), error, *places))
        outputs.append((output, str(iterator.get_state())))
    return outputs
