"""Pickles the registration of a class as a pytree of JAX together with the class.

A class of ``__main__`` is pickled by value.  Unpickling creates another class, which
JAX would treat as a leaf.  Batches would then be arrays of objects.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

# The result of a pickler's `reducer_override`.
Reduced = tuple[Any, ...]
BY_VALUE_LENGTH = 6


def with_registration(cls: type, reduced: Reduced) -> Reduced:
    """Add the registration of a class, if it has one, to its reduced form.

    Args:
        cls: The class.
        reduced: The reduced form from cloudpickle.  It has `BY_VALUE_LENGTH` items if
            the class is pickled by value.  Otherwise it is returned unchanged.
    """
    registered = _registry().get(cls)
    if registered is None or len(reduced) != BY_VALUE_LENGTH:
        return reduced
    make, arguments, state, *iterators, set_state = reduced
    functions = registered.to_iter, registered.from_iter
    return make, arguments, (set_state, state, functions), *iterators, _set_state


def _set_state(
    cls: type,
    pickled: tuple[
        Callable[[type, Any], Any], Any, tuple[Callable[..., Any], Callable[..., Any]]
    ],
) -> None:
    set_state, state, functions = pickled
    set_state(cls, state)
    if cls not in _registry():
        import jax

        jax.tree_util.register_pytree_node(cls, *functions)


def _registry() -> dict[type, Any]:
    """Return JAX's registry of pytree classes in this process; {} without JAX."""
    module = sys.modules.get("jax._src.tree_util")
    return getattr(module, "_registry", {})
