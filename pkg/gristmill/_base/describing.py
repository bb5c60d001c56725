"""Short texts for `repr`: what an object is, with its main arguments, in one line."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

# Characters of a value that has a text of its own.
MOST = 160


class _Short(reprlib.Repr):
    """Leaves out the middle of what is long, contents of arrays, and addresses."""

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
    """One line that says what a value is, however large it is."""
    return _short.repr(value)


def call_text(what: object, *first: Any, **arguments: Any) -> str:
    """The call that makes such an object: the name of its class, and arguments."""
    texts = [value_text(value) for value in first]
    texts += [f"{name}={value_text(value)}" for name, value in arguments.items()]
    return f"{type(what).__name__}({', '.join(texts)})"


class FileSource:
    """A source of files whose `repr`, which is in states, is a hash of the paths."""

    def _shown(self) -> str:
        """Return the text with paths that `print`, loaders and reports show."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self._shown()

    def __format__(self, spec: str) -> str:
        # The `__repr__` of a user's source, which is in states, may contain f"{self}".
        return format(repr(self), spec)


def printable(text: str, besides: str = "") -> str:
    """Return a text with a space for each character that cannot be shown.

    Characters in `besides` stay.
    """
    return "".join(c if c.isprintable() or c in besides else " " for c in text)


def call_html(what: object, arguments: Mapping[str, str | Sequence[str]]) -> str:
    """Return the call that makes an object as a table, for a notebook.

    Args:
        what: The object, of which the class is named.
        arguments: The text of each; of several things that of each, in their order.
    """
    import html  # Slow to import.

    rows = []
    for name, value in arguments.items():
        texts = [value] if isinstance(value, str) else value
        shown = "<br>".join(html.escape(printable(text)) for text in texts)
        rows.append(f"<tr><th>{html.escape(name)}</th><td>{shown}</td></tr>\n")
    name = html.escape(type(what).__name__)
    return f"<table>\n<caption>{name}</caption>\n{''.join(rows)}</table>\n"


def kept_arguments(what: object) -> dict[str, Any]:
    """The arguments of an object's class that it keeps as ``_name``."""
    names = inspect.signature(type(what).__init__).parameters
    kept = vars(what)
    return {name: kept[f"_{name}"] for name in names if f"_{name}" in kept}
