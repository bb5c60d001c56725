"""Adds notes to exceptions that pass through a chain: the node and the element.

Notes are only created when an exception passes, and cost nothing otherwise.
`gristmill._engine.failures` adds the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeAlias

from gristmill._dataset.model.names import transform_name
from gristmill._hot.error_location import ErrorLocation, as_failure

# A dataset, and the index of one of its elements.
DatasetElement: TypeAlias = tuple[Any, int]


class Note(str):
    """A note by a node of a chain. It is pickled as plain text."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


class ElementNote(ErrorLocation):
    """A note on an exception that a node raised for one element."""

    __slots__ = ()

    def __new__(cls, text: str, node: Any, element: DatasetElement | None) -> Self:
        self = str.__new__(cls, text)
        # The transform of an iterator is that of its node.
        transform = getattr(getattr(node, "_node", node), "_transform", None)
        self.operation = None if transform is None else transform_name(transform)
        self.key, self.record_index = None, -1
        if element is not None:
            self.key, self.record_index = record_of(*element), element[1]
        return self


def note_element(
    error: BaseException, node: Any, dataset: Any, index: int, doing: str = "processed"
) -> None:
    """Add a note that a node raised an exception for an element of a dataset.

    Raises:
        RuntimeError: See `note`.
    """
    element = dataset, index
    _add_element_note(error, node, f"{doing} {_element_text(*element)}", element)


def note_step(error: BaseException, iterator: Any, doing: str = "processed") -> None:
    """Add a note that an iterator raised an exception for the last element it read.

    Raises:
        RuntimeError: See `note`.
    """
    element, prefix = _last_element(iterator)
    text = "an element"
    if element is not None:
        text = prefix + _element_text(*element) + _stream_text(iterator)
    _add_element_note(error, iterator, f"{doing} {text}", element)


def last_element_getter(iterator: Any) -> Callable[[], Any]:
    """Return a function that returns the last element that an iterator read.

    The function returns a dataset and an index, or None if they are not known.  A node
    that reads several elements before it computes them calls the function after each
    read, and passes the result of the one that failed to `note_earlier_element`.
    `note_step` would name the last element that was read.
    """
    node = iterator
    while not hasattr(node, "_last_element_read"):
        if not getattr(node, "_FOLLOWS_PARENT", False) or node._COMBINES_ELEMENTS:
            return lambda: None
        node = node._parent
    element: Callable[[], Any] = node._last_element_read
    return element


def note_earlier_element(error: BaseException, iterator: Any, element: Any) -> None:
    """Add a note like `note_step`, for an element of a `last_element_getter`.

    Raises:
        RuntimeError: See `note`.
    """
    text = (
        "an element"
        if element is None
        else _element_text(*element) + _stream_text(iterator)
    )
    _add_element_note(error, iterator, f"processed {text}", element)


def is_noted(error: BaseException) -> bool:
    """Return whether any node has added a note to an exception."""
    notes = getattr(error, "__notes__", ())
    return any(isinstance(note, (Note, ErrorLocation)) for note in notes)


def note_outermost(error: BaseException, iterator: Any) -> None:
    """Add a note like `note_step`, if no node has added a note yet.

    Raises:
        RuntimeError: See `note`.
    """
    if not is_noted(error):
        note_step(error, iterator)


def note(error: BaseException, subject: object, doing: str) -> None:
    """Add a note about the work of a node or an iterator, unless it is there already.

    A block that fails is computed again, element by element, and may raise the same
    exception again.

    Raises:
        RuntimeError: `error` is a StopIteration, which would end the data.
    """
    _add_note_once(error, subject, Note(f"while {subject} {doing}"))


def _add_element_note(
    error: BaseException, node: Any, doing: str, element: DatasetElement | None
) -> None:
    """Add a note like `note`, with the element as attributes.

    Raises:
        RuntimeError: See `note`.
    """
    _add_note_once(error, node, ElementNote(f"while {node} {doing}", node, element))


def _add_note_once(
    error: BaseException, subject: object, text: Note | ElementNote
) -> None:
    """Add a note once; raise another error in place of a StopIteration."""
    failure = as_failure(error, subject)
    if text not in getattr(failure, "__notes__", ()):
        failure.add_note(text)
    if failure is not error:
        raise failure from error


def record_of(dataset: Any, index: int) -> int | None:
    """Return the number of the source record of element `index`, or None."""
    find_record = getattr(dataset, "_record", None)
    record: int | None = None if find_record is None else find_record(index)
    return record


def _element_text(dataset: Any, index: int) -> str:
    record = record_of(dataset, index)
    return f"element {index}" if record is None else f"record {record} (index {index})"


def _last_element(iterator: Any) -> tuple[DatasetElement | None, str]:
    """Return the last element that a step read, and a prefix for its text.

    The element is None if it is not known.
    """
    node, prefix = iterator, ""
    while not hasattr(node, "_last_element_read"):
        if not getattr(node, "_FOLLOWS_PARENT", False):
            return None, ""
        if node._COMBINES_ELEMENTS and node is not iterator:
            prefix = "the batch up to "
        node = node._parent
    return node._last_element_read(), prefix


def _stream_text(iterator: Any) -> str:
    context = iterator._ctx.mp_context
    return f" of stream {context.process_index}" if context.process_count > 1 else ""
