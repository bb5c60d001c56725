"""The steps of a dataset.  The twin of ``gristmill._hot.steps``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from gristmill._base.types import Int64Array
from gristmill._slow.draw import OpDraws

WINDOW = 1000
# Told of what an element raised, and of its index.
Failed = Callable[[Exception, int], None]


def map_block(
    call: Callable[[Any], Any],
    elements: list[Any],
    indices: Int64Array,
    failed: Failed,
) -> list[Any]:
    """Return ``[call(x) for x in elements]``; see ``gristmill._hot.steps``."""
    return _each(lambda i, x: call(x), elements, indices, failed)


def filter_block(
    call: Callable[[Any], Any],
    elements: list[Any],
    indices: Int64Array,
    failed: Failed,
) -> list[Any]:
    """Return the elements, absent where ``call(x)`` is false."""
    return _each(lambda i, x: x if call(x) else None, elements, indices, failed)


def map_with_index_block(
    call: Callable[[int, Any], Any],
    elements: list[Any],
    indices: Int64Array,
    failed: Failed,
) -> list[Any]:
    """Return ``call(i, x)`` for each element."""
    return _each(call, elements, indices, failed)


def random_map_block(
    call: Callable[[Any, np.random.Generator], Any],
    elements: list[Any],
    indices: Int64Array,
    draws: OpDraws,
    failed: Failed,
) -> list[Any]:
    """Return ``call(x, rng)`` for each element, with the generator of its index."""
    return _each(lambda i, x: call(x, draws.at(i)), elements, indices, failed)


def _each(
    call: Callable[[int, Any], Any],
    elements: list[Any],
    indices: Int64Array,
    failed: Failed,
) -> list[Any]:
    out: list[Any] = []
    for i, x in zip(_checked(indices, len(elements)), elements, strict=True):
        try:
            out.append(None if x is None else call(i, x))
        except Exception as error:
            failed(error, i)
            raise
    return out


def scatter(part: list[Any], places: Int64Array, out: list[Any]) -> None:
    """Set ``out[places[i]]`` to ``part[i]``; `places` is int64, one for each."""
    for place, element in zip(_checked(places, len(part)), part, strict=True):
        if not 0 <= place < len(out):
            raise IndexError(f"place {place} is not in a list of {len(out)} elements")
        out[place] = element


def take(elements: Iterator[Any], count: int) -> list[Any]:
    """Return up to `count` elements of an iterator, fewer only at its end."""
    return list(itertools.islice(elements, count))


def _checked(indices: Int64Array, n: int) -> list[int]:
    wrong = type(indices) is not np.ndarray or indices.dtype != np.int64
    if wrong or len(indices) != n:
        raise TypeError(
            f"indices must be a contiguous int64 array of {n} elements, got {indices!r}"
        )
    listed: list[int] = indices.tolist()
    return listed


class Dropping:
    """What iterators that drop elements have in common: they count them in windows."""

    _seen = 0
    _skipped = 0

    def _count(self, passed: bool) -> None:
        self._seen += 1
        self._skipped += not passed
        if self._seen == WINDOW:
            skipped = self._skipped
            self._seen = self._skipped = 0
            if skipped:
                self._judge(skipped)

    def _judge(self, skipped: int) -> None:
        raise NotImplementedError


class Step:
    """What steps over iterators have in common."""

    def _failed(self, error: Exception) -> None:
        raise NotImplementedError


class MapStep(Step):
    """Iterates over ``call(x)`` for each x of an iterator."""

    def __init__(self, elements: Iterator[Any], call: Callable[[Any], Any]) -> None:
        self._elements = elements
        self._call = call

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        element = next(self._elements)
        try:
            return None if element is None else self._call(element)
        except Exception as error:
            self._failed(error)
            raise


class FilterStep(Step, Dropping):
    """Iterates over the elements of an iterator that a predicate is true of."""

    def __init__(self, elements: Iterator[Any], call: Callable[[Any], Any]) -> None:
        self._elements = elements
        self._call = call

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            element = next(self._elements)
            try:
                passed = bool(self._call(element))
            except Exception as error:
                self._failed(error)
                raise
            self._count(passed)
            if passed:
                return element


class MapWithIndexStep(Step):
    """Iterates over ``call(i, x)``, where i counts the elements of an iterator."""

    def __init__(
        self, elements: Iterator[Any], call: Callable[[int, Any], Any]
    ) -> None:
        self._elements = elements
        self._call = call
        self.counter = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        index = self.counter
        element = next(self._elements)
        self.counter = index + 1
        try:
            return None if element is None else self._call(index, element)
        except Exception as error:
            self._failed(error)
            raise


class RandomMapStep(Step):
    """Iterates over ``call(x, rng)``, where the generator depends on a count."""

    def __init__(
        self,
        elements: Iterator[Any],
        call: Callable[[Any, np.random.Generator], Any],
        draws: OpDraws,
    ) -> None:
        self._elements = elements
        self._call = call
        self._draws = draws
        self.counter = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        count = self.counter
        element = next(self._elements)
        self.counter = count + 1
        if element is None:
            return None
        first, stride = self._processes()
        try:
            return self._call(element, self._draws.at(first + count * stride))
        except Exception as error:
            self._failed(error)
            raise

    def _processes(self) -> tuple[int, int]:
        raise NotImplementedError


class MixStep:
    """Takes from several iterators in turn; see ``gristmill._hot.steps``."""

    def __init__(self, parts: Iterable[Iterator[Any]]) -> None:
        self._parts = list(parts)
        self._turns: list[int] = []
        self._turns_from = 0
        self.index = 0
        self.stopped = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.stopped:
            raise StopIteration
        place = self.index - self._turns_from
        if not 0 <= place < len(self._turns):
            self._turns = self._look_up_turns(self.index)
            self._turns_from = self.index
            place = 0
        number = self._turns[place]
        self.index += 1
        try:
            return next(self._parts[number])
        except StopIteration:
            self.stopped = True
            raise
        except Exception as error:
            error.add_note(
                f"Exception caught while processing dataset @ input_index={number}"
            )
            raise

    def _look_up_turns(self, first: int) -> list[int]:
        raise NotImplementedError


class Feed(Dropping):
    """Iterates over elements that come in blocks; see ``gristmill._hot.steps``."""

    def __init__(self, keep_absent: bool) -> None:
        self._keep_absent = keep_absent
        self._block: list[Any] = []
        self._at = 0
        self.given = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            if self._at == len(self._block):
                self._more()
            element, self._block[self._at] = self._block[self._at], None
            self._at += 1
            self.given += 1
            if self._keep_absent:
                return element
            self._count(element is not None)
            if element is not None:
                return element

    def _refill(self, first: int) -> list[Any]:
        raise NotImplementedError

    def _more(self) -> None:
        self.seek(self.given)
        self._block = self._refill(self.given)
        if not self._block:
            raise StopIteration

    def ahead(self) -> int:
        """Elements that were fetched and not yet given out."""
        return len(self._block) - self._at

    def seek(self, given: int) -> None:
        """Go on after `given` elements."""
        self._block = []
        self._at = 0
        self.given = given
