"""Classes of the user's ``__main__``, which go to workers by value, on their way back.

An instance that comes back from a worker is of the class that the user's process has,
which stays as it is: to send the class by value once more would set its attributes to
what they were when the worker began.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

# In the user's process: the classes that workers were given, both ways.
_numbers: weakref.WeakKeyDictionary[type, int] = weakref.WeakKeyDictionary()
_given: weakref.WeakValueDictionary[int, type] = weakref.WeakValueDictionary()
_count = itertools.count()
# In a worker: the numbers of classes that it was given.
_received: weakref.WeakKeyDictionary[type, int] = weakref.WeakKeyDictionary()


def give(cls: type, reduced: Any) -> Any:
    """How to pickle a class for workers, where `reduced` is how cloudpickle does it."""
    if not isinstance(reduced, tuple) or len(reduced) < 3:
        return reduced  # By name.
    number = _numbers.get(cls)
    if number is None:
        number = _numbers[cls] = next(_count)
        _given[number] = cls
    make, arguments, *rest = reduced
    return receive, (number, make, arguments), *rest


def receive(number: int, make: Callable[..., type], arguments: tuple[Any, ...]) -> type:
    """The class, in a worker, that cloudpickle makes of `arguments`."""
    cls = make(*arguments)
    _received[cls] = number
    return cls


def give_back(cls: type) -> Any:
    """How to pickle a class for the user's process; None where it did not give it."""
    number = _received.get(cls)
    return None if number is None else (original, (number,))


def original(number: int) -> type:
    """The class that workers were given by this number."""
    return _given[number]
