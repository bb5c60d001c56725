"""Converts inputs to a set of ArrayRecord files. Interrupted conversions can resume.

The records of all inputs, in order, are split into one contiguous range for each shard.
The shards, in the order of their names, therefore contain the records in the order of
the inputs, for any number of processes.  A shard is written to a hidden file, read
back, and recorded in the journal.  When all shards are finished, they are renamed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from gristmill._base.progress_bar import Progress
from gristmill._convert import worker_pool
from gristmill._convert.errors import ConversionError, from_os_error
from gristmill._convert.inputs import Input, TFRecordInput
from gristmill._convert.journal import Journal
from gristmill._convert.paths import Output, part_of
from gristmill._convert.shards import WrittenFile, write_file

# The number of tasks for each process, so that all processes end at about the same
# time. It is one if a task must read the records before its own first.
TASKS_PER_PROCESS = 4


@dataclasses.dataclass(frozen=True)
class _Run:
    """Consecutive shards for one process to write."""

    inputs: Sequence[Input]
    counts: Sequence[int]
    # For each shard: its number, first record, end (exclusive), and path.
    shards: Sequence[tuple[int, int, int, str]]
    options: str


def convert(
    inputs: Sequence[Input],
    output: Output,
    writer_options: str,
    *,
    ranges: Literal["even", "inputs"],
    processes: int,
    restart: bool,
    progress: Progress,
) -> tuple[list[WrittenFile], int]:
    """Convert inputs to an output.

    Args:
        inputs: The inputs, in order.
        output: The output files.
        writer_options: Options of the array-record package's writer.
        ranges: "even" splits the records evenly, with a difference of at most one;
            "inputs" writes the records of one input to each shard.
        processes: The number of shards to write at once.
        restart: Whether to remove the files of an earlier run, and start again.
        progress: Receives the progress.

    Returns:
        The contents of all files, and the number of files written by this run.

    Raises:
        ConversionError: The conversion failed. Finished shards remain, and the same
            call continues from there.
    """
    folder = os.path.dirname(output.final(0)) or "."
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise from_os_error(error, folder) from error
    header = {
        "inputs": [_identity(each) for each in inputs],
        "outputs": [os.path.basename(output.final(s)) for s in range(output.count)],
        "writer_options": writer_options,
        "ranges": ranges,
    }
    with contextlib.closing(Journal(output.journal)) as journal:
        steps = _Conversion(inputs, output, header, processes, progress, journal)
        if restart:
            steps.remove_earlier()
        steps.begin()
        count = steps.write()
        steps.finish()
        return list(journal.shards.values()), count


@dataclasses.dataclass(frozen=True)
class _Conversion:
    """A conversion whose journal is open."""

    inputs: Sequence[Input]
    output: Output
    header: dict[str, Any]
    processes: int
    progress: Progress
    journal: Journal

    def remove_earlier(self) -> None:
        """Remove the files of an earlier conversion, and existing output files."""
        finals = [*self._finals_before(), *map(self.output.final, self._numbers)]
        self._remove([*finals, *map(part_of, finals)])
        self.journal.clear()

    def begin(self) -> None:
        """Start the journal, or check that it belongs to this conversion."""
        journal = self.journal
        if journal.header == self.header:
            return
        if journal.shards:
            difference = _difference(journal.header or {}, self.header)
            raise ConversionError(
                f"{journal.path}: {difference}. Run the earlier command to resume it,"
                " or pass --restart to remove its files and start again."
            )
        self._remove([*map(part_of, self._finals_before())])
        for path in map(self.output.final, self._numbers):
            if os.path.lexists(path):
                self._remove([journal.path])
                raise ConversionError(
                    f"{path} exists already, and this conversion did not make it."
                    " Choose another OUT, or pass --restart to replace it."
                )
        journal.begin(self.header)

    def write(self) -> int:
        """Write the shards that are not finished, and return their number."""
        pending = [s for s in self._numbers if not self._is_finished(s)]
        if pending:
            with _with_shared_indices(self.inputs) as inputs:
                if self.journal.counts is None:
                    self._count(inputs)
                self._write(self._plan(inputs, pending))
        return len(pending)

    def finish(self) -> None:
        """Rename the files, unless an input has changed during the conversion."""
        for each, before in zip(self.inputs, self.header["inputs"], strict=True):
            if _identity(each) != before:
                raise ConversionError(
                    f"{each.path} was changed while it was converted. Run the command"
                    " again with --restart when the file no longer changes."
                )
        try:
            for shard in self._numbers:
                with contextlib.suppress(FileNotFoundError):  # Already renamed.
                    os.replace(self.output.part(shard), self.output.final(shard))
            folder = os.open(os.path.dirname(self.output.stem) or ".", os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise from_os_error(error, self.output.stem) from error

    @property
    def _numbers(self) -> range:
        return range(self.output.count)

    def _finals_before(self) -> list[str]:
        """Return the outputs in the journal whose names this output may have.

        Anyone could have written the journal, so other names are ignored.
        """
        folder = os.path.dirname(self.output.stem)
        names = (self.journal.header or {}).get("outputs", [])
        return [
            os.path.join(folder, name) for name in names if self.output.may_be(name)
        ]

    def _remove(self, paths: Sequence[str]) -> None:
        read = {os.path.realpath(each.path) for each in self.inputs}
        for path in paths:
            if os.path.realpath(path) in read:
                raise ConversionError(
                    f"{path} is an input, and would be removed with the files of an"
                    " earlier conversion to this OUT. Choose another OUT."
                )
        for path in paths:
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise from_os_error(error, path) from error

    def _is_finished(self, number: int) -> bool:
        """Return whether a shard is in the journal and its file exists."""
        shard = self.journal.shards.get(number)
        if shard is None:
            return False
        for path in (self.output.part(number), self.output.final(number)):
            with contextlib.suppress(FileNotFoundError):
                return os.path.getsize(path) == shard.file_bytes
        return False

    def _count(self, inputs: Sequence[Input]) -> None:
        self.progress.begin("inputs counted", len(inputs))
        counts = [0] * len(inputs)
        reports = worker_pool.run(_count_one, inputs, self.processes)
        with contextlib.closing(reports):
            for number, count in reports:
                counts[number] = count
                self.progress.advance(1)
        self.journal.set_counts(counts)

    def _plan(self, inputs: Sequence[Input], pending: Sequence[int]) -> list[_Run]:
        counts, processes = self.journal.counts or [], self.processes
        by_input = self.header["ranges"] == "inputs"
        if by_input:
            limits = list(itertools.accumulate(counts, initial=0))
        else:
            total, count = sum(counts), self.output.count
            limits = [number * total // count for number in range(count + 1)]
        if by_input or all(each.seeks() for each in inputs):
            processes *= TASKS_PER_PROCESS
        size = max(1, len(pending) // processes)
        options = self.header["writer_options"]
        shards = [
            (number, limits[number], limits[number + 1], self.output.part(number))
            for number in pending
        ]
        return [
            _Run(inputs, counts, shards[begin : begin + size], options)
            for begin in range(0, len(shards), size)
        ]

    def _write(self, runs: Sequence[_Run]) -> None:
        total = sum(self.journal.counts or [])
        expected = sum(end - begin for run in runs for _, begin, end, _ in run.shards)
        self.progress.begin("records", total, total - expected)
        reports = worker_pool.run(_write_run, runs, self.processes)
        with contextlib.closing(reports):
            for _, (shard, report) in reports:
                if isinstance(report, int):
                    self.progress.advance(report)
                else:
                    self.journal.add(shard, report)


def _identity(each: Input) -> dict[str, Any]:
    fields = dataclasses.fields(each)
    options = {
        field.name: getattr(each, field.name) for field in fields if field.compare
    }
    return {"kind": type(each).__name__, **options, **each.identity()}


@contextlib.contextmanager
def _with_shared_indices(inputs: Sequence[Input]) -> Iterator[list[Input]]:
    """Share the indices of TFRecord files among all processes."""
    with tempfile.TemporaryDirectory(prefix="gristmill-convert-") as folder:
        yield [
            dataclasses.replace(each, index_dir=folder)
            if isinstance(each, TFRecordInput)
            else each
            for each in inputs
        ]


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Describe the first difference between two conversions."""
    for name in ("writer_options", "ranges", "outputs"):
        if before.get(name) != now[name]:
            return (
                f"this output was begun with other options: {name} was"
                f" {_brief(before.get(name))}, now it is {_brief(now[name])}"
            )
    old, new = before.get("inputs", []), now["inputs"]
    if len(old) != len(new):
        return f"this output was begun with {len(old)} inputs, now there are {len(new)}"
    for one, other in zip(old, new, strict=True):
        for name in other:
            if one.get(name) != other[name]:
                return (
                    f"input {other['path']} has changed: {name} was"
                    f" {one.get(name)}, now it is {other[name]}"
                )
    return "this output was begun by a different command"


def _brief(value: Any) -> str:
    if isinstance(value, list) and len(value) > 1:
        return f"{value[0]} and {len(value) - 1} more"
    return str(value[0]) if isinstance(value, list) else repr(value)


def _count_one(each: Input) -> Iterator[int]:
    yield each.count()


def _write_run(run: _Run) -> Iterator[tuple[int, int | WrittenFile]]:
    """Write the shards of a run, reading adjacent ranges in one pass.

    Yields:
        The number of a shard, and each report of `write_file`.
    """
    records: Iterator[bytes] = iter(())
    position = -1
    for shard, begin, end, path in run.shards:
        if begin != position:
            records = _records(run.inputs, run.counts, begin)
        some = itertools.islice(records, end - begin)
        for report in write_file(some, path, run.options):
            yield shard, report
        position = end


def _records(
    inputs: Sequence[Input], counts: Sequence[int], first: int
) -> Iterator[bytes]:
    """Yield the records of all inputs in order, from number `first` on.

    Raises:
        ConversionError: The number of records in an input differs from its count.
    """
    for each, count in zip(inputs, counts, strict=True):
        if first >= count:
            first -= count
            continue
        found = first
        for record in each.records(first):
            found += 1
            if found > count:
                break
            yield record
        if found != count:
            raise ConversionError(
                f"{each.path}: expected {count} records, as counted before, found"
                f" {'more' if found > count else found}. Run the command again with"
                " --restart when the file no longer changes."
            )
        first = 0
