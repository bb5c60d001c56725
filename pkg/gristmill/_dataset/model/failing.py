"""Notes on exceptions that pass through a chain: which node, which element.

They are made where an exception passes, and cost nothing elsewhere.  Which worker it
was, `gristmill._engine.failures` adds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gristmill._hot.place import Place, as_failure


class Note(str):
    """A note of a chain's; in another process it is the text alone."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


def note_element(
    error: BaseException, node: Any, dataset: Any, index: int, doing: str = "processed"
) -> None:
    """Note on an exception that a node raised it, for an element of a dataset.

    Raises:
        RuntimeError: As of `note`.
    """
    note(error, node, f"{doing} {_element(dataset, index)}")


def note_step(error: BaseException, iterator: Any, doing: str = "processed") -> None:
    """Note on an exception that an iterator raised it, for the last element it took.

    Raises:
        RuntimeError: As of `note`.
    """
    note(error, iterator, f"{doing} {_last_element(iterator)}")


def taker(iterator: Any) -> Callable[[], Any]:
    """What tells which element an iterator has given last, for `note_taken`.

    It gives a dataset and an index; None where they are not known.
    """
    node = iterator
    while not hasattr(node, "_last_taken"):
        if not getattr(node, "_TAKES_IN_STEP", False) or node._BATCHES:
            return lambda: None
        node = node._parent
    taken: Callable[[], Any] = node._last_taken
    return taken


def note_taken(error: BaseException, iterator: Any, taken: Any) -> None:
    """As `note_step`, for an element of which was told before what it is."""
    text = "an element" if taken is None else _element(*taken) + _stream(iterator)
    note(error, iterator, f"processed {text}")


def is_noted(error: BaseException) -> bool:
    """Whether a node further up, where an exception came from, has noted that."""
    notes = getattr(error, "__notes__", ())
    return any(isinstance(note, (Note, Place)) for note in notes)


def note_outermost(error: BaseException, iterator: Any) -> None:
    """As `note_step`, where it may as well have come from a node further up."""
    if not is_noted(error):
        note_step(error, iterator)


def note(error: BaseException, who: object, doing: str) -> None:
    """Note what a node or an iterator was doing, unless that has been said.

    A block that fails is computed again, element by element, and may raise the same
    exception again.

    Raises:
        RuntimeError: It is a StopIteration, which would end the data.
    """
    text = f"while {who} {doing}"
    failure = as_failure(error, who)
    if text not in getattr(failure, "__notes__", ()):
        failure.add_note(Note(text))
    if failure is not error:
        raise failure from error


def record_of(dataset: Any, index: int) -> int | None:
    """The record of a source that element `index` is made of, where it is one."""
    find = getattr(dataset, "_record", None)
    found: int | None = None if find is None else find(index)
    return found


def _element(dataset: Any, index: int) -> str:
    record = record_of(dataset, index)
    return f"element {index}" if record is None else f"record {record} (index {index})"


def _last_element(iterator: Any) -> str:
    """What the element is that a step took last, as far as it is known."""
    node, batch = iterator, ""
    while not hasattr(node, "_last_taken"):
        if not getattr(node, "_TAKES_IN_STEP", False):
            return "an element"
        if node._BATCHES and node is not iterator:
            batch = "the batch up to "
        node = node._parent
    return batch + _element(*node._last_taken()) + _stream(node)


def _stream(iterator: Any) -> str:
    context = iterator._ctx.mp_context
    return f" of stream {context.process_index}" if context.process_count > 1 else ""
