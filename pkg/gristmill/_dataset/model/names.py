"""Returns the names of transforms and nodes for messages, in Grain's words."""

from __future__ import annotations

import inspect
from typing import Any

from gristmill import transforms
from gristmill._base.object_repr import call_text, stored_arguments

# Instances of these are named by their class, functions by their file and line.
_NAMED_BY_CLASS = (
    transforms.Batch,
    transforms.BlockMap,
    transforms.Map,
    transforms.RandomMap,
    transforms.TfRandomMap,
    transforms.Filter,
    transforms.FlatMap,
)


def transform_name(transform: Any) -> str:
    """Return a name such as ``<lambda> @ .../a/b/file.py:12``, or the class name."""
    if isinstance(transform, _NAMED_BY_CLASS):
        cls = type(transform)
        if cls.__str__ is object.__str__ and cls.__repr__ is object.__repr__:
            return cls.__name__
        return str(transform)
    name = getattr(transform, "__name__", None) or repr(transform)
    try:
        file = inspect.getsourcefile(transform)
        line = inspect.getsourcelines(transform)[1]
    except (OSError, TypeError):
        return str(name)
    if file is None:
        return str(name)
    parts = file.split("/")
    where = f".../{'/'.join(parts[-3:])}" if len(parts) >= 3 else file
    return f"{name} @ {where}:{line}"


def node_line(node: Any) -> str:
    """Return the ``str`` of a dataset or an iterator, without the rest of its chain."""
    # Only Gristmill's `__str__` returns the whole chain; a user's is kept.
    home = getattr(type(node).__str__, "__module__", "")
    if home.startswith("gristmill.") and hasattr(node, "_node_line"):
        line: str = node._node_line()
        return line
    return str(node)


def node_text(node: Any) -> str:
    """Return the text of a dataset or an iterator with its main arguments.

    This is its ``str`` if that is Gristmill's and has arguments.  A user's ``str`` is
    not called, because it may call `repr`.
    """
    home = getattr(type(node).__str__, "__module__", "")
    if home.startswith("gristmill.") and (line := node_line(node)).endswith((")", "]")):
        return line
    parents = ("parent", "parents", "ds")
    arguments = stored_arguments(getattr(node, "_node", node))
    return call_text(node, **{k: v for k, v in arguments.items() if k not in parents})
