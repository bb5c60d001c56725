"""A question about one node of a dataset: ns per element, in Gristmill and in Grain."""

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import peers
from harness import GRAIN, AtLeast, Measurement, Question, Settings

CHECKED = 5_000
ELEMENTS_AT_ONCE = 1_000

# Takes a library and the reading options of its sources, returns a dataset.
Make = Callable[[Any, Any], Any]


def question(name: str, text: str, make: Make, times: float) -> Question:
    """The question whether we are at least so many times as fast as Grain."""
    return Question(
        name=name,
        text=text,
        unit="ns/element",
        contestants={
            "gristmill": functools.partial(
                _measure, make, peers.import_gristmill, None
            ),
            "grain default": functools.partial(
                _measure, make, peers.import_grain, None
            ),
            "grain (0, 0)": functools.partial(
                _measure, make, peers.import_grain, (0, 0)
            ),
        },
        targets=(AtLeast(times, GRAIN),),
    )


def _measure(
    make: Make,
    import_library: Callable[[], Any],
    options: tuple[int, int] | None,
    settings: Settings,
) -> Measurement:
    library = import_library()
    dataset = make(library, options and library.ReadOptions(*options))
    elements = _endless(dataset)
    first = [int(element) for element in itertools.islice(elements, CHECKED)]
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < settings.seconds:
        for _ in itertools.islice(elements, ELEMENTS_AT_ONCE):
            pass
        count += ELEMENTS_AT_ONCE
    nanoseconds = (time.perf_counter() - start) / count * 1e9
    return Measurement(nanoseconds, {"elements": str(hash(tuple(first)))})


def _endless(dataset: Any) -> Iterator[Any]:
    while True:
        yield from dataset
