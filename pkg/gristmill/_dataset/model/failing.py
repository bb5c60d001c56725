"""Notes on exceptions that pass through a chain: which node, which element.

They are made where an exception passes, and cost nothing elsewhere.  Which worker it
was, `gristmill._engine.failures` adds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeAlias

from gristmill._dataset.model.names import transform_name
from gristmill._hot.place import Place, as_failure

# A dataset, and the index of one of its elements.
DatasetElement: TypeAlias = tuple[Any, int]


class Note(str):
    """A note of a chain's; in another process it is the text alone."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


class ElementNote(Place):
    """A note on an exception that a node raised for one element."""

    __slots__ = ()

    def __new__(cls, text: str, node: Any, element: DatasetElement | None) -> Self:
        self = str.__new__(cls, text)
        transform = getattr(getattr(node, "_node", node), "_transform", None)
        self.operation = None if transform is None else transform_name(transform)
        self.key, self.record_index = None, -1
        if element is not None:
            self.key, self.record_index = record_of(*element), element[1]
        return self


def note_element(
    error: BaseException, node: Any, dataset: Any, index: int, doing: str = "processed"
) -> None:
    """Note on an exception that a node raised it, for an element of a dataset.

    Raises:
        RuntimeError: As of `note`.
    """
    element = dataset, index
    _add(error, node, f"{doing} {_element(*element)}", element)


def note_step(error: BaseException, iterator: Any, doing: str = "processed") -> None:
    """Note on an exception that an iterator raised it, for the last element it took.

    Raises:
        RuntimeError: As of `note`.
    """
    element, batch = _last_element(iterator)
    text = "an element"
    if element is not None:
        text = batch + _element(*element) + _stream(iterator)
    _add(error, iterator, f"{doing} {text}", element)


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
    _add(error, iterator, f"processed {text}", taken)


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
    _raise_with(error, who, Note(f"while {who} {doing}"))


def _add(
    error: BaseException, node: Any, doing: str, element: DatasetElement | None
) -> None:
    """As `note`, with a note that has the element as attributes."""
    _raise_with(error, node, ElementNote(f"while {node} {doing}", node, element))


def _raise_with(error: BaseException, who: object, text: Note | ElementNote) -> None:
    """Add a note unless it is there; raise another error if this is a StopIteration."""
    failure = as_failure(error, who)
    if text not in getattr(failure, "__notes__", ()):
        failure.add_note(text)
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


def _last_element(iterator: Any) -> tuple[DatasetElement | None, str]:
    """Return the element that a step took last, and the words before its text.

    The element is None if it is not known.
    """
    node, batch = iterator, ""
    while not hasattr(node, "_last_taken"):
        if not getattr(node, "_TAKES_IN_STEP", False):
            return None, ""
        if node._BATCHES and node is not iterator:
            batch = "the batch up to "
        node = node._parent
    return node._last_taken(), batch


def _stream(iterator: Any) -> str:
    context = iterator._ctx.mp_context
    return f" of stream {context.process_index}" if context.process_count > 1 else ""
