"""Short texts for `repr`: an object's class and main arguments, in one line."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

# Maximum length of a value's text, in characters.
MOST = 160


class _Short(reprlib.Repr):
    """Omits the middle of long texts, the contents of arrays, and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.maxother = self.maxstring = MOST

    def repr_instance(self, x: Any, level: int) -> str:
        shape = getattr(x, "shape", None)
        if isinstance(shape, tuple) and shape and hasattr(x, "dtype"):
            return f"{x.dtype}[{','.join(map(str, shape))}]"
        if isinstance(x, FileSource):
            return x._shown()
        if isinstance(x, type) or inspect.isroutine(x):
            return x.__qualname__
        kind: Any = type(x)
        if kind.__repr__ is object.__repr__:
            return str(kind.__qualname__)
        return " ".join(super().repr_instance(x, level).split())


_short = _Short()


def value_text(value: Any) -> str:
    """Return a description of a value in one line, however large it is."""
    return _short.repr(value)


def call_text(what: object, *first: Any, **arguments: Any) -> str:
    """Return the call that creates an object: its class name and arguments."""
    texts = [value_text(value) for value in first]
    texts += [f"{name}={value_text(value)}" for name, value in arguments.items()]
    return f"{type(what).__name__}({', '.join(texts)})"


class FileSource:
    """A source of files whose `repr` contains a hash of the paths.

    Saved states contain the `repr`.
    """

    def _shown(self) -> str:
        """Return the text with paths, for `print`, loaders and reports."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self._shown()

    def __format__(self, spec: str) -> str:
        # Saved states contain the `__repr__` of a user's source, which may use
        # f"{self}".
        return format(repr(self), spec)


def printable(text: str, besides: str = "") -> str:
    """Replace each unprintable character of a text by a space.

    Characters in `besides` are kept.
    """
    return "".join(c if c.isprintable() or c in besides else " " for c in text)


def call_html(what: object, arguments: Mapping[str, str | Sequence[str]]) -> str:
    """Return the call that creates an object as an HTML table, for a notebook.

    Args:
        what: The object.  The table shows the name of its class.
        arguments: The text of each argument.  An argument with several values has a
            sequence of texts, in the order of the values.
    """
    import html  # Slow to import.

    rows = []
    for name, value in arguments.items():
        texts = [value] if isinstance(value, str) else value
        shown = "<br>".join(html.escape(printable(text)) for text in texts)
        rows.append(f"<tr><th>{html.escape(name)}</th><td>{shown}</td></tr>\n")
    name = html.escape(type(what).__name__)
    return f"<table>\n<caption>{name}</caption>\n{''.join(rows)}</table>\n"


def stored_arguments(what: object) -> dict[str, Any]:
    """Return the constructor arguments that an object stores as ``_name``."""
    names = inspect.signature(type(what).__init__).parameters
    kept = vars(what)
    return {name: kept[f"_{name}"] for name in names if f"_{name}" in kept}
