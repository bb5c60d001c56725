"""Finds the path from a user's object to another object, in Python syntax."""

from __future__ import annotations

import collections
import functools
import itertools
import types
from collections.abc import Iterator
from typing import Any

# The search gives up after this many objects.
_MAX_OBJECTS = 100_000
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_Part = tuple[str, Any]


def path_to(target: Any, root: Any) -> str:
    """Return the path of an object in `root`, such as ``source.files[0]``.

    The path begins at the last of Gristmill's own objects on the way.  Returns "" if
    the object is not found.
    """
    seen = {id(root)}
    # `visited` holds references: an attribute may return a temporary object, whose id
    # could otherwise be reused.
    queue: collections.deque[tuple[str, Any]] = collections.deque([("", root)])
    visited = []
    while queue and len(seen) < _MAX_OBJECTS:
        path, owner = queue.popleft()
        visited.append(owner)
        if type(owner).__module__.partition(".")[0] == "gristmill":
            path = ""
        for step, child in _parts_of(owner):
            if child is target:
                return _join(path, step)
            if id(child) not in seen:
                seen.add(id(child))
                queue.append((_join(path, step), child))
    return ""


def _join(path: str, step: str) -> str:
    return path + step if path else step.lstrip("._")


def _parts_of(owner: Any) -> Iterator[_Part]:
    """Yield the parts of an object that are pickled, each with its path step."""
    if isinstance(owner, dict):
        yield from ((f"[{key!r}]", value) for key, value in owner.items())
    elif isinstance(owner, _SEQUENCES):
        yield from ((f"[{i}]", value) for i, value in enumerate(owner))
    elif isinstance(owner, types.FunctionType):
        yield from _variable_parts(owner)
    elif isinstance(owner, types.MethodType):
        yield ".__self__", owner.__self__
    elif isinstance(owner, functools.partial):
        yield from ((f".args[{i}]", value) for i, value in enumerate(owner.args))
        yield from ((f".keywords[{k!r}]", v) for k, v in owner.keywords.items())
        yield ".func", owner.func
    if not isinstance(owner, type | types.ModuleType):
        yield from _attribute_parts(owner)


def _attribute_parts(owner: Any) -> Iterator[_Part]:
    for name, value in getattr(owner, "__dict__", {}).items():
        yield f".{name}", value
    for kind in type(owner).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name != "__dict__" and hasattr(owner, name):
                yield f".{name}", getattr(owner, name)
        if kind.__module__ == "__main__":  # Pickled by value, with its attributes.
            yield from ((f".{name}", value) for name, value in vars(kind).items())


def _variable_parts(function: types.FunctionType) -> Iterator[_Part]:
    """Yield a function's closure variables, default arguments and globals."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"'s variable {name}", cell.cell_contents
        except ValueError:
            continue  # The variable has no value yet.
    defaults = function.__defaults__ or ()
    first = code.co_argcount - len(defaults)
    named = zip(code.co_varnames[first : code.co_argcount], defaults, strict=True)
    for name, value in itertools.chain(named, (function.__kwdefaults__ or {}).items()):
        yield f"'s argument {name}", value
    for name in code.co_names:
        if name in function.__globals__:
            yield f"'s global variable {name}", function.__globals__[name]
