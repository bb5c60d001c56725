"""What a transformation is called in texts: the words are Grain's."""

from __future__ import annotations

import inspect
from typing import Any

from gristmill import transforms

_NAMED_BY_CLASS = (
    transforms.Batch,
    transforms.Map,
    transforms.RandomMap,
    transforms.TfRandomMap,
    transforms.Filter,
    transforms.FlatMap,
)


def transform_name(transform: Any) -> str:
    """A name such as ``<lambda> @ .../a/b/file.py:12``, or that of a class."""
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
