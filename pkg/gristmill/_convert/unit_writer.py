"""Writes one range of the records of a conversion, in a worker process."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from gristmill._convert.errors import ConversionError
from gristmill._convert.inputs import Input


class Unit(NamedTuple):
    """A file to write: its number, its first record, its end (exclusive), its path."""

    number: int
    begin: int
    end: int
    path: str


class PlacedRecords(Iterable[Any]):
    """Consecutive records of the inputs of a conversion.

    Args:
        task: The task that reads them.
        begin: The number of the first record among those of all inputs.
        records: The records.
    """

    def __init__(self, task: Task, begin: int, records: Iterator[Any]) -> None:
        self._task = task
        self._begin = begin
        self._records = records

    def __iter__(self) -> Iterator[Any]:
        return self._records

    def place(self, position: int) -> str:
        """Return the input and the place in it of record number `position` of these."""
        number, position = self._find(position)
        source = self._task.inputs[number]
        return f"{source.path}: {source.place(position)}"

    def input_of(self, position: int) -> int:
        """Return the number of the input with record number `position` of these."""
        return self._find(position)[0]

    def _find(self, position: int) -> tuple[int, int]:
        """Return the number of a record's input, and its position in that input."""
        position += self._begin
        number = bisect.bisect_right(self._ends, position)
        if number == len(self._ends):
            raise IndexError("There is no such record.")
        return number, position - self._ends[number] + self._task.counts[number]

    @functools.cached_property
    def _ends(self) -> list[int]:
        """For each input, the number of records up to its end."""
        return [*itertools.accumulate(self._task.counts)]


class UnitWriter(Protocol):
    """Writes records to a file. It can be pickled for worker processes."""

    def write(self, records: PlacedRecords, path: str) -> Iterator[Any]:
        """Write records to a file, and flush it to disk.

        Yields:
            An `Advance` from time to time, and at the end a dataclass that describes
            the file.

        Raises:
            ConversionError: The records cannot be converted, or the file cannot be
                written.
        """


@dataclasses.dataclass(frozen=True)
class Task:
    """Consecutive units for one process to write.

    Attributes:
        inputs: The inputs of the conversion.
        counts: The number of records in each input.
        units: The units to write.
        writer: Writes a unit.
    """

    inputs: Sequence[Input]
    counts: Sequence[int]
    units: Sequence[Unit]
    writer: UnitWriter


def write_units(task: Task) -> Iterator[tuple[int, Any]]:
    """Write the units of a task, reading adjacent ranges in one pass.

    Yields:
        The number of a unit, and what the writer yields for it.
    """
    records: Iterator[Any] = iter(())
    position = -1  # The number of the record that `records` yields next.
    for unit in task.units:
        if unit.begin != position:
            records = _read_records(task.inputs, task.counts, unit.begin)
        unit_records = itertools.islice(records, unit.end - unit.begin)
        placed = PlacedRecords(task, unit.begin, unit_records)
        for report in task.writer.write(placed, unit.path):
            yield unit.number, report
        position = unit.end


def _read_records(
    inputs: Sequence[Input], counts: Sequence[int], first: int
) -> Iterator[Any]:
    """Yield the records of all inputs in order, from number `first` on.

    Raises:
        ConversionError: The number of records in an input differs from its count.
    """
    for source, count in zip(inputs, counts, strict=True):
        if first >= count:
            first -= count
            continue
        read_count = first
        for record in source.records(first):
            read_count += 1
            if read_count > count:
                break
            yield record
        if read_count != count:
            raise ConversionError(
                f"{source.path}: expected {count} records, as counted before, found"
                f" {'more' if read_count > count else read_count}. Run the command"
                " again with --restart when the file no longer changes."
            )
        first = 0
