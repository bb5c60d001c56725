"""Pickles the registration of a class as a pytree of JAX together with the class.

A class of ``__main__`` is pickled by value.  Where it is unpickled it is another class,
which JAX would take for a leaf, so that batches would be arrays of objects.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Reduced = tuple[Any, ...]
BY_VALUE = 6


def with_registration(kind: type, reduced: Reduced) -> Reduced:
    """Return how to pickle a class, by value with its registration if it has one.

    Args:
        kind: The class.
        reduced: How cloudpickle pickles it, in 6 parts if by value.
    """
    registered = _registry().get(kind)
    if registered is None or len(reduced) != BY_VALUE:
        return reduced
    make, arguments, state, *iterators, set_state = reduced
    functions = registered.to_iter, registered.from_iter
    return make, arguments, (set_state, state, functions), *iterators, _set_state


def _set_state(
    kind: type,
    pickled: tuple[
        Callable[[type, Any], Any], Any, tuple[Callable[..., Any], Callable[..., Any]]
    ],
) -> None:
    set_state, state, functions = pickled
    set_state(kind, state)
    if kind not in _registry():
        import jax

        jax.tree_util.register_pytree_node(kind, *functions)


def _registry() -> dict[type, Any]:
    """The classes that JAX knows in this process, and how it takes them apart."""
    module = sys.modules.get("jax._src.tree_util")
    return getattr(module, "_registry", {})
