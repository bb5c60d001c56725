"""Decides how many threads may run the user's code."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

# The names of functions that return the current thread, and of the attributes that
# return a thread's name.
_CURRENT_THREAD_NAMES = frozenset({"current_thread", "currentThread"})
_THREAD_NAME_ATTRIBUTES = frozenset({"name", "getName"})
# Methods of sources and transforms that Grain calls in the threads of a pool.
_CALLED_BY_GRAIN = (
    *("__getitem__", "__getitems__", "__call__"),
    *("filter", "flat_map", "map", "map_with_index", "random_map"),
)


def threads_to_compute(wanted: int = sys.maxsize) -> int:
    """Return the number of threads to compute with: `wanted`, at most one per core.

    Returns 1 in a worker process, because the workers share the cores.
    """
    # If multiprocessing is not imported, this process is not a worker.
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        return 1
    return max(1, min(wanted, len(os.sched_getaffinity(0))))


def reads_thread_name(user_code: Any) -> bool:
    """Return whether a function, a source or a transform reads its thread's name.

    Grain reads in the numbered threads of a pool, and some sources choose their result
    by the number in the name.  The search follows calls of the object's own methods,
    and of functions in the module of their caller.
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
    methods = [method for name in _CALLED_BY_GRAIN for method in _members(kind, name)]
    return _any_reads_name(kind, methods)


def _any_reads_name(kind: type, functions: list[FunctionType]) -> bool:
    """Return whether functions, or functions that they call, read the thread's name.

    Args:
        kind: The class whose methods they may call.
        functions: The functions.  Called functions are appended to this list.
    """
    for function in functions:
        for code in _codes(function.__code__):
            names = frozenset(code.co_names)
            if names & _CURRENT_THREAD_NAMES and names & _THREAD_NAME_ATTRIBUTES:
                return True
            for name in code.co_names:
                callees = [*_members(kind, name), *_functions_beside(function, name)]
                functions += [callee for callee in callees if callee not in functions]
    return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of the functions defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _members(kind: type, name: str) -> Iterator[FunctionType]:
    """Yield the methods called `name` of a class and its bases, without calling any."""
    for owner in kind.__mro__:
        function = _function_of(vars(owner).get(name))
        if function is not None:
            yield function


def _functions_beside(function: FunctionType, name: str) -> Iterator[FunctionType]:
    """Yield the function called `name` in the module of `function`, if there is one."""
    neighbour = _function_of(function.__globals__.get(name))
    if neighbour is not None and neighbour.__module__ == function.__module__:
        yield neighbour


def _function_of(value: Any) -> FunctionType | None:
    """Return the function of a method, a classmethod or a property, or None."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, (classmethod, staticmethod, MethodType)):
        value = value.__func__
    return value if isinstance(value, FunctionType) else None
