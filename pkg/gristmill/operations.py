"""Grain's old operations: callables that map an iterator of records to another one.

They exist for old pipelines.  Transforms do the same, are faster, and their positions
are part of saved states.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from gristmill import batching
from gristmill._base import log
from gristmill._base.argument_checks import check_integer
from gristmill._base.lazy_names import public_names
from gristmill.records import Record, RecordMetadata

__all__ = [
    "BatchOperation",
    "FilterOperation",
    "MapOperation",
    "Operation",
    "RandomMapOperation",
]

_IN = TypeVar("_IN")
_OUT = TypeVar("_OUT")


class Operation(Protocol):
    """A callable that a loader accepts as an operation, besides transforms.

    Example:
        >>> def without_last(records):
        ...     last = next(records)
        ...     for record in records:
        ...         yield last
        ...         last = record
        >>> list(gristmill.load(range(4), num_epochs=1, transformations=[without_last]))
        [0, 1, 2]
    """

    def __call__(
        self, input_iterator: Iterator[Record[Any]], /
    ) -> Iterator[Record[Any]]:
        """Return an iterator of output records, given one of input records."""


class OneByOne(abc.ABC):
    """An operation that returns at most one record for each record.

    Attributes:
        replacement: The transform that does the same.
    """

    replacement: ClassVar[str]

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        """Yield the output records, given the input records."""
        self.warn()
        for record in input_iterator:
            output = self.output_of(record)
            if output is not None:
                yield output

    def warn(self) -> None:
        """Log a warning that names the replacement."""
        _warn_deprecated(type(self).__name__, self.replacement)

    @abc.abstractmethod
    def output_of(self, record: Record[Any]) -> Record[Any] | None:
        """Return the output for one record, or None to drop it.

        Args:
            record: The input record.

        Returns:
            The output record, or None.
        """


@dataclasses.dataclass
class MapOperation(OneByOne, Generic[_IN, _OUT]):
    """Replaces each element by the result of a function.

    Args:
        map_function: Takes and returns an element.

    Raises:
        ValueError: The function raised; its exception is the cause.

    Example:
        >>> double = MapOperation(lambda x: 2 * x)
        >>> list(gristmill.load(range(3), num_epochs=1, transformations=[double]))
        [0, 2, 4]
    """

    map_function: Callable[[_IN], _OUT]
    replacement: ClassVar[str] = "MapTransform"

    def output_of(self, record: Record[_IN]) -> Record[_OUT]:
        """Return the output for one record."""
        data = _call("map function", self.map_function, record.data)
        return Record(record.metadata.remove_record_key(), data)


@dataclasses.dataclass
class RandomMapOperation(OneByOne, Generic[_IN, _OUT]):
    """Replaces each element by the result of a function that draws random numbers.

    Args:
        random_map_function: Takes an element and a generator, returns an element.

    Raises:
        ValueError: The function raised; its exception is the cause.

    Example:
        >>> toss = RandomMapOperation(lambda x, rng: x + rng.integers(2).item())
        >>> loader = gristmill.load(
        ...     range(0, 6, 2), num_epochs=1, seed=1, transformations=[toss]
        ... )
        >>> list(loader)
        [0, 2, 5]
    """

    random_map_function: Callable[[_IN, np.random.Generator], _OUT]
    replacement: ClassVar[str] = "RandomMapTransform"

    def output_of(self, record: Record[_IN]) -> Record[_OUT]:
        """Return the output for one record."""
        # Like in Grain, the function gets None if there is no seed.
        arguments = record.data, record.metadata.rng
        data = _call("random map function", self.random_map_function, *arguments)
        return Record(record.metadata.remove_record_key(), data)


@dataclasses.dataclass
class FilterOperation(OneByOne, Generic[_IN]):
    """Keeps the elements for which a function returns true.

    Args:
        condition_function: Takes an element.

    Raises:
        ValueError: The function raised; its exception is the cause.

    Example:
        >>> even = FilterOperation(lambda x: x % 2 == 0)
        >>> list(gristmill.load(range(5), num_epochs=1, transformations=[even]))
        [0, 2, 4]
    """

    condition_function: Callable[[_IN], bool]
    replacement: ClassVar[str] = "FilterTransform"

    def output_of(self, record: Record[_IN]) -> Record[_IN] | None:
        """Return the record, or None to drop it."""
        if not _call("condition function", self.condition_function, record.data):
            return None
        return Record(record.metadata.remove_record_key(), record.data)


@dataclasses.dataclass
class BatchOperation(Generic[_IN, _OUT]):
    """Combines consecutive elements into batches.

    Args:
        batch_size: Elements per batch, at least 1.
        drop_remainder: Whether to drop a last batch of fewer elements.
        batch_fn: Makes a batch from a list of elements; None stacks their leaves.

    Raises:
        ValueError: `batch_size` is not positive.
        TypeError: Elements of one batch differ in structure, with no `batch_fn`.

    Example:
        >>> pairs = BatchOperation(2, drop_remainder=True)
        >>> loader = gristmill.load(range(5), num_epochs=1, transformations=[pairs])
        >>> [batch.tolist() for batch in loader]
        [[0, 1], [2, 3]]
    """

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[_IN]], _OUT] | None = None

    def __post_init__(self) -> None:
        check_integer("batch_size", self.batch_size)
        if self.batch_size <= 0:
            raise ValueError(
                f"batch_size must be a positive integer. Got {self.batch_size}."
            )
        self._display_deprecation_message = True
        if self.batch_fn is None:
            self.batch_fn = self._default_batch_fn

    def __call__(self, input_iterator: Iterator[Record[_IN]]) -> Iterator[Record[_OUT]]:
        """Yield one record for each batch of input records."""
        if self._display_deprecation_message:
            _warn_deprecated("BatchOperation", "Batch")
        assert self.batch_fn is not None
        elements: list[_IN] = []
        last_metadata = RecordMetadata(index=0)
        for record in input_iterator:
            last_metadata = record.metadata
            elements.append(record.data)
            if len(elements) == self.batch_size:
                yield Record(last_metadata.remove_record_key(), self.batch_fn(elements))
                elements = []
        if elements and not self.drop_remainder:
            yield Record(last_metadata.remove_record_key(), self.batch_fn(elements))

    def disable_deprecation_message(self) -> None:
        """Do not log a deprecation warning when this operation is used."""
        self._display_deprecation_message = False

    def _default_batch_fn(self, elements: Sequence[Any]) -> Any:
        different = {
            position: element
            for position, element in enumerate(elements)
            if batching.structures_differ(elements[0], element)
        }
        if different:
            raise TypeError(
                "Record structures do not match. Record at position 0 has "
                f"structure {elements[0]}, while records at positions "
                f"{[*different]} have structures {[*different.values()]}."
            )
        return batching.make_batch(elements, stack_single=True)


def _warn_deprecated(operation: str, replacement: str) -> None:
    log.error(
        "%s is deprecated. Use gristmill.python.%s: it is faster and keeps its"
        " position in saved states.",
        operation,
        replacement,
    )


def _call(function_name: str, function: Callable[..., _OUT], *args: Any) -> _OUT:
    try:
        return function(*args)
    except Exception as error:
        text = f"PyGrain encountered an error when calling {function_name}."
        raise ValueError(text) from error


def __dir__() -> list[str]:
    return public_names(__all__)
