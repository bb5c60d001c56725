"""The intervals in which the stages of a run were active, and their file format."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """A call of a stage.

    Attributes:
        process: The id of the process.
        thread: The id of the thread.
        stage: The kind and the name of the stage, such as "transform: Decode".
        start_ns: When the call began, by `time.perf_counter_ns`.
        end_ns: When it returned.
    """

    process: int
    thread: int
    stage: str
    start_ns: int
    end_ns: int


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """The measured intervals of a run, sorted by their start.

    Attributes:
        intervals: The intervals.  If they overlap in a thread, the earlier one contains
            the later one.
        process_names: The name of each process, by its id.
        thread_names: The name of each thread, by the ids of its process and of itself.
        complete: Whether there are all intervals, and not only the first ones of a
            process.
    """

    intervals: tuple[Interval, ...]
    process_names: Mapping[int, str] = dataclasses.field(hash=False)
    thread_names: Mapping[tuple[int, int], str] = dataclasses.field(hash=False)
    complete: bool

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the intervals to a file in Chrome's trace event format."""
        events = [*self._name_events(), *self._interval_events()]
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def _name_events(self) -> list[dict[str, Any]]:
        """Return the events that name processes and threads, in their order."""
        events: list[dict[str, Any]] = []
        # "main" comes first, and workers follow by number.
        processes = [(len(name), name, pid) for pid, name in self.process_names.items()]
        for place, (_, name, pid) in enumerate(sorted(processes)):
            events += [
                _metadata("process_name", pid, pid, {"name": name}),
                _metadata("process_sort_index", pid, pid, {"sort_index": place}),
            ]
        events += [
            _metadata("thread_name", pid, thread, {"name": name})
            for (pid, thread), name in self.thread_names.items()
        ]
        return events

    def _interval_events(self) -> list[dict[str, Any]]:
        """Return one complete event for each interval, with times in microseconds."""
        origin_ns = self.intervals[0].start_ns if self.intervals else 0
        events = []
        for process, thread, stage, start_ns, end_ns in self.intervals:
            kind, _, _ = stage.partition(": ")
            events.append(
                {
                    "name": stage,
                    "cat": kind,
                    "ph": "X",
                    "ts": (start_ns - origin_ns) / 1000,
                    "dur": (end_ns - start_ns) / 1000,
                    "pid": process,
                    "tid": thread,
                }
            )
        return events


def _metadata(
    name: str, process: int, thread: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Return an event that describes a process or a thread."""
    return {"name": name, "ph": "M", "pid": process, "tid": thread, "args": arguments}
