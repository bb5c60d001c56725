"""What a node can be told about its own work; Grain's subclasses tell it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from gristmill._dataset.model import observer

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Grain's words for what a step does.
IPL_CAT_ENQUEUE = "enqueue"
IPL_CAT_PREFETCH = "prefetch"
IPL_CAT_PREPROCESSING = "preprocessing"
IPL_CAT_READ = "read"
IPL_CAT_UNKNOWN = "unknown"


class Stats:
    """Takes what a user's node reports and keeps none of it.

    Nodes are measured from outside, so that none needs to report anything.

    Args:
        owner: Returns the iterator whose statistics these are; None for a dataset's.
    """

    def __init__(self, owner: Callable[[], Any] | None = None) -> None:
        self._owner = owner

    def _get_execution_summary(self) -> Any:
        """Return the measurements of a chain; see `get_execution_summary`."""
        iterator = None if self._owner is None else self._owner()
        return observer.current().get_execution_summary(iterator)

    @contextlib.contextmanager
    def record_self_time(
        self, offset_ns: float = 0, num_elements: int = 1
    ) -> Iterator[None]:
        """Enclose the node's own work."""
        yield

    def record_output_spec(self, element: T) -> T:
        """Return the element."""
        return element

    record_output_spec_for_batch = record_output_spec
    record_bytes_consumed = record_bytes_produced = record_output_spec

    def report(self) -> Any:
        """Return None: there is nothing to report."""


class Timer:
    """Adds up the time spent in several ``with`` blocks."""

    def __init__(self) -> None:
        self.reset()

    def __enter__(self) -> None:
        self._began = time.perf_counter_ns()

    def __exit__(self, *error: object) -> None:
        self._total += time.perf_counter_ns() - self._began

    def value(self) -> int:
        """The nanoseconds of all blocks so far."""
        return self._total

    def reset(self) -> None:
        """Begin again at 0."""
        self._total = self._began = 0


def record_next_duration_if_output(next_fn: F) -> F:
    """Decorate the ``__next__`` of a user's iterator: it is measured from outside."""
    return next_fn


def trace_input_pipeline(
    stage_category: str = IPL_CAT_UNKNOWN, **trace_kwargs: Any
) -> Callable[[F], F]:
    """Make a decorator of a user's ``__getitem__``, which needs none here."""
    return record_next_duration_if_output


def trace_input_pipeline_next(
    stage_category: str = IPL_CAT_PREFETCH,
) -> Callable[[F], F]:
    """Make a decorator of a user's ``__next__``, which needs none here."""
    return record_next_duration_if_output


def trace_input_pipeline_prefetch(func: F) -> F:
    """Decorate a function that reads elements ahead: it is measured from outside."""
    return func
