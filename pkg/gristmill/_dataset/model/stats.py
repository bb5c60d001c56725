"""Grain's interface for nodes to report their own work. Gristmill ignores reports."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from gristmill._dataset.model import observer

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Grain's categories of steps.
IPL_CAT_ENQUEUE = "enqueue"
IPL_CAT_PREFETCH = "prefetch"
IPL_CAT_PREPROCESSING = "preprocessing"
IPL_CAT_READ = "read"
IPL_CAT_UNKNOWN = "unknown"


class Stats:
    """Accepts the reports of a user's node and discards them.

    Nodes are measured from outside, so they need not report anything.

    Args:
        owner: Returns the iterator that has these statistics; None for a dataset.
    """

    def __init__(self, owner: Callable[[], Any] | None = None) -> None:
        self._owner = owner

    def _get_execution_summary(self) -> Any:
        """Return the measurements of a chain; see `get_execution_summary`."""
        iterator = None if self._owner is None else self._owner()
        return observer.get_observer().get_execution_summary(iterator)

    @contextlib.contextmanager
    def record_self_time(
        self, offset_ns: float = 0, num_elements: int = 1
    ) -> Iterator[None]:
        """Return a context manager for the node's own work, which does nothing."""
        yield

    def record_output_spec(self, element: T) -> T:
        """Return the element."""
        return element

    record_output_spec_for_batch = record_output_spec
    record_bytes_consumed = record_bytes_produced = record_output_spec

    def report(self) -> Any:
        """Return None, because there is nothing to report."""


class Timer:
    """Adds up the time spent in ``with`` blocks."""

    def __init__(self) -> None:
        self.reset()

    def __enter__(self) -> None:
        self._began = time.perf_counter_ns()

    def __exit__(self, *error: object) -> None:
        self._total += time.perf_counter_ns() - self._began

    def value(self) -> int:
        """Return the total time of all blocks so far, in ns."""
        return self._total

    def reset(self) -> None:
        """Reset the total to 0."""
        self._total = self._began = 0


def record_next_duration_if_output(next_fn: F) -> F:
    """Return the ``__next__`` of a user's iterator. It is measured from outside."""
    return next_fn


def trace_input_pipeline(
    stage_category: str = IPL_CAT_UNKNOWN, **trace_kwargs: Any
) -> Callable[[F], F]:
    """Return a decorator for a user's ``__getitem__``, which does nothing."""
    return record_next_duration_if_output


def trace_input_pipeline_next(
    stage_category: str = IPL_CAT_PREFETCH,
) -> Callable[[F], F]:
    """Return a decorator for a user's ``__next__``, which does nothing."""
    return record_next_duration_if_output


def trace_input_pipeline_prefetch(func: F) -> F:
    """Return a function that reads ahead. It is measured from outside."""
    return func
