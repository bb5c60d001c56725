"""Which threads may run the user's code, and how many of them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

# Functions that return the current thread, and attributes that have its name.
_THREAD = frozenset({"current_thread", "currentThread"})
_NAME = frozenset({"name", "getName"})
# Methods of sources and transforms that Grain calls in the threads of a pool.
_CALLED = (
    *("__getitem__", "__getitems__", "__call__"),
    *("filter", "flat_map", "map", "map_with_index", "random_map"),
)


def threads_to_compute(wanted: int = sys.maxsize) -> int:
    """How many threads compute where `wanted` may: no more than there are cores.

    One in a worker, whose cores are for the other workers, too.
    """
    # Not imported to find out.
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        return 1
    return max(1, min(wanted, len(os.sched_getaffinity(0))))


def reads_thread_name(user_code: Any) -> bool:
    """Return whether a function, a source or a transform looks at its thread's name.

    Grain reads in threads that a pool numbers, and some sources choose what they return
    by the number in that name.  Follows calls of the object's own methods, and of
    functions that are in the module of their caller.
    """
    while isinstance(user_code, functools.partial):
        user_code = user_code.func
    function = _function_of(user_code)
    if function is not None:
        return _any_reads_name(type(None), [function])
    kind: type = type(user_code)
    return _class_reads_name(kind)


@functools.cache
def _class_reads_name(kind: type) -> bool:
    return _any_reads_name(
        kind, [each for name in _CALLED for each in _members(kind, name)]
    )


def _any_reads_name(kind: type, functions: list[FunctionType]) -> bool:
    """Check functions of a class, and those that they call; `functions` grows."""
    for function in functions:
        for code in _codes(function.__code__):
            names = frozenset(code.co_names)
            if names & _THREAD and names & _NAME:
                return True
            for name in code.co_names:
                found = [*_members(kind, name), *_neighbours(function, name)]
                functions += [each for each in found if each not in functions]
    return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Return the code of a function and of those that are defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _members(kind: type, name: str) -> Iterator[FunctionType]:
    """Return the methods of a class and its bases, without calling anything."""
    for holder in kind.__mro__:
        function = _function_of(vars(holder).get(name))
        if function is not None:
            yield function


def _neighbours(function: FunctionType, name: str) -> Iterator[FunctionType]:
    """Return a function of the module that another one is in, if there is one."""
    found = _function_of(function.__globals__.get(name))
    if found is not None and found.__module__ == function.__module__:
        yield found


def _function_of(value: Any) -> FunctionType | None:
    """Return the function that a method, a classmethod or a property runs, or None."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, (classmethod, staticmethod, MethodType)):
        value = value.__func__
    return value if isinstance(value, FunctionType) else None
