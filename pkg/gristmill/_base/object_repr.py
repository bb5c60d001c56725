"""Short texts for `repr`: an object's class and main arguments, in one line."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

# Maximum length of a value's text, in characters.
MAX_VALUE_LENGTH = 160


class _ValueRepr(reprlib.Repr):
    """Omits the middle of long texts, the contents of arrays, and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.maxother = self.maxstring = MAX_VALUE_LENGTH

    def repr_instance(self, x: Any, level: int) -> str:
        shape = getattr(x, "shape", None)
        if isinstance(shape, tuple) and shape and hasattr(x, "dtype"):
            return f"{x.dtype}[{','.join(map(str, shape))}]"
        if isinstance(x, FileSource):
            return x._text_with_paths()
        if isinstance(x, type) or inspect.isroutine(x):
            return x.__qualname__
        kind: Any = type(x)
        if kind.__repr__ is object.__repr__:
            return str(kind.__qualname__)
        return " ".join(super().repr_instance(x, level).split())


_value_repr = _ValueRepr()


def value_text(value: Any) -> str:
    """Return a short description of a value of any size, in one line."""
    return _value_repr.repr(value)


def call_text(obj: object, *first: Any, **arguments: Any) -> str:
    """Return the call that creates an object: its class name and arguments."""
    texts = [value_text(value) for value in first]
    texts += [f"{name}={value_text(value)}" for name, value in arguments.items()]
    return f"{type(obj).__name__}({', '.join(texts)})"


class FileSource:
    """A source of files whose `repr` contains a hash of the paths.

    Saved states contain the `repr`.
    """

    def _text_with_paths(self) -> str:
        """Return the text with paths, for `print`, loaders and reports."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self._text_with_paths()

    def __format__(self, spec: str) -> str:
        # Saved states contain the `__repr__` of a user's source, which may use
        # f"{self}".
        return format(repr(self), spec)


def printable(text: str, keep: str = "") -> str:
    """Replace each unprintable character of a text by a space.

    Characters in `keep` are not replaced.
    """
    return "".join(c if c.isprintable() or c in keep else " " for c in text)


def call_html(obj: object, arguments: Mapping[str, str | Sequence[str]]) -> str:
    """Return the call that creates an object as an HTML table, for a notebook.

    Args:
        obj: The object.  The table shows the name of its class.
        arguments: The text of each argument.  An argument with several values has a
            sequence of texts, in the order of the values.
    """
    import html  # Slow to import.

    rows = []
    for name, value in arguments.items():
        texts = [value] if isinstance(value, str) else value
        cell = "<br>".join(html.escape(printable(text)) for text in texts)
        rows.append(f"<tr><th>{html.escape(name)}</th><td>{cell}</td></tr>\n")
    name = html.escape(type(obj).__name__)
    return f"<table>\n<caption>{name}</caption>\n{''.join(rows)}</table>\n"


def stored_arguments(obj: object) -> dict[str, Any]:
    """Return the constructor arguments that an object stores as ``_name``."""
    names = inspect.signature(type(obj).__init__).parameters
    attributes = vars(obj)
    return {name: attributes[f"_{name}"] for name in names if f"_{name}" in attributes}
