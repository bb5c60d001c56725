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
from typing import Any, Literal, NamedTuple

from gristmill._base.progress_bar import Progress
from gristmill._convert import worker_pool
from gristmill._convert.errors import ConversionError, from_os_error
from gristmill._convert.inputs import Input, TFRecordInput
from gristmill._convert.journal import Journal
from gristmill._convert.paths import Output, part_of
from gristmill._convert.shards import WrittenFile, write_file

# The number of tasks for each process, so that all processes end at about the same
# time. It is 1 if a task must read the records before its own first.
TASKS_PER_PROCESS = 4


class _Shard(NamedTuple):
    """A shard to write: its number, its first record, its end (exclusive), its path."""

    number: int
    begin: int
    end: int
    path: str


@dataclasses.dataclass(frozen=True)
class _Task:
    """Consecutive shards for one process to write.

    Attributes:
        inputs: The inputs of the conversion.
        counts: The number of records in each input.
        shards: The shards to write.
        options: Options of the array-record package's writer.
    """

    inputs: Sequence[Input]
    counts: Sequence[int]
    shards: Sequence[_Shard]
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
        A description of each file, and the number of files written by this run.

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
        "inputs": [_identity_of(source) for source in inputs],
        "outputs": [
            os.path.basename(output.final(shard)) for shard in range(output.count)
        ],
        "writer_options": writer_options,
        "ranges": ranges,
    }
    with contextlib.closing(Journal(output.journal)) as journal:
        conversion = _Conversion(inputs, output, header, processes, progress, journal)
        if restart:
            conversion.remove_earlier_files()
        conversion.begin()
        written_count = conversion.write_pending()
        conversion.finish()
        return list(journal.shards.values()), written_count


@dataclasses.dataclass(frozen=True)
class _Conversion:
    """A conversion whose journal is open."""

    inputs: Sequence[Input]
    output: Output
    header: dict[str, Any]
    processes: int
    progress: Progress
    journal: Journal

    def remove_earlier_files(self) -> None:
        """Remove the files of an earlier conversion, and existing output files."""
        current_paths = map(self.output.final, self._shard_numbers)
        paths = [*self._earlier_output_paths(), *current_paths]
        self._remove([*paths, *map(part_of, paths)])
        self.journal.clear()

    def begin(self) -> None:
        """Start the journal, or check that it belongs to this conversion."""
        journal = self.journal
        if journal.header == self.header:
            return
        if journal.shards:
            difference = _describe_difference(journal.header or {}, self.header)
            raise ConversionError(
                f"{journal.path}: {difference}. Run the earlier command to resume it,"
                " or pass --restart to remove its files and start again."
            )
        self._remove([*map(part_of, self._earlier_output_paths())])
        for path in map(self.output.final, self._shard_numbers):
            if os.path.lexists(path):
                self._remove([journal.path])  # It has no finished shards.
                raise ConversionError(
                    f"{path} exists already, and this conversion did not make it."
                    " Choose another OUT, or pass --restart to replace it."
                )
        journal.begin(self.header)

    def write_pending(self) -> int:
        """Write the shards that are not finished, and return their number."""
        numbers = self._shard_numbers
        pending = [number for number in numbers if not self._is_finished(number)]
        if pending:
            with _with_shared_indices(self.inputs) as inputs:
                if self.journal.counts is None:
                    self._count(inputs)
                self._write(self._plan(inputs, pending))
        return len(pending)

    def finish(self) -> None:
        """Rename the files, unless an input has changed during the conversion."""
        for source, identity in zip(self.inputs, self.header["inputs"], strict=True):
            if _identity_of(source) != identity:
                raise ConversionError(
                    f"{source.path} was changed while it was converted. Run the command"
                    " again with --restart when the file no longer changes."
                )
        try:
            for shard in self._shard_numbers:
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
    def _shard_numbers(self) -> range:
        """The numbers of all shards."""
        return range(self.output.count)

    def _earlier_output_paths(self) -> list[str]:
        """Return the paths of the outputs that the journal lists.

        Anyone could have written the journal, so names that a conversion to this OUT
        cannot produce are ignored.
        """
        folder = os.path.dirname(self.output.stem)
        names = (self.journal.header or {}).get("outputs", [])
        return [
            os.path.join(folder, name)
            for name in names
            if self.output.is_possible_name(name)
        ]

    def _remove(self, paths: Sequence[str]) -> None:
        """Remove files that exist, unless one of them is an input."""
        input_paths = {os.path.realpath(source.path) for source in self.inputs}
        for path in paths:
            if os.path.realpath(path) in input_paths:
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
        """Return whether a shard is in the journal, and its file has the right size."""
        shard = self.journal.shards.get(number)
        if shard is None:
            return False
        for path in (self.output.part(number), self.output.final(number)):
            with contextlib.suppress(FileNotFoundError):
                return os.path.getsize(path) == shard.file_bytes
        return False

    def _count(self, inputs: Sequence[Input]) -> None:
        """Count the records of each input, and store the counts in the journal."""
        self.progress.begin("inputs counted", len(inputs))
        counts = [0] * len(inputs)
        reports = worker_pool.run(_count_records, inputs, self.processes)
        with contextlib.closing(reports):
            for number, count in reports:
                counts[number] = count
                self.progress.advance(1)
        self.journal.set_counts(counts)

    def _plan(self, inputs: Sequence[Input], pending: Sequence[int]) -> list[_Task]:
        """Return the tasks that write the pending shards."""
        counts, processes = self.journal.counts or [], self.processes
        by_input = self.header["ranges"] == "inputs"
        if by_input:
            bounds = list(itertools.accumulate(counts, initial=0))
        else:
            total, count = sum(counts), self.output.count
            bounds = [number * total // count for number in range(count + 1)]
        if by_input or all(source.can_seek() for source in inputs):
            processes *= TASKS_PER_PROCESS
        shards_per_task = max(1, len(pending) // processes)
        options = self.header["writer_options"]
        shards = [
            _Shard(number, bounds[number], bounds[number + 1], self.output.part(number))
            for number in pending
        ]
        return [
            _Task(inputs, counts, shards[first : first + shards_per_task], options)
            for first in range(0, len(shards), shards_per_task)
        ]

    def _write(self, tasks: Sequence[_Task]) -> None:
        """Write the shards of all tasks, and store each finished one in the journal."""
        total = sum(self.journal.counts or [])
        pending = sum(
            shard.end - shard.begin for task in tasks for shard in task.shards
        )
        self.progress.begin("records", total, total - pending)
        reports = worker_pool.run(_write_shards, tasks, self.processes)
        with contextlib.closing(reports):
            for _, (number, report) in reports:
                if isinstance(report, int):
                    self.progress.advance(report)
                else:
                    self.journal.add(number, report)


def _identity_of(source: Input) -> dict[str, Any]:
    """Return the journal's entry for an input.

    It changes when the content of the input or an option that affects its records does.
    """
    fields = dataclasses.fields(source)
    options = {
        field.name: getattr(source, field.name) for field in fields if field.compare
    }
    return {"kind": type(source).__name__, **options, **source.identity()}


@contextlib.contextmanager
def _with_shared_indices(inputs: Sequence[Input]) -> Iterator[list[Input]]:
    """Share the indices of TFRecord files among all processes."""
    with tempfile.TemporaryDirectory(prefix="gristmill-convert-") as folder:
        yield [
            dataclasses.replace(source, index_dir=folder)
            if isinstance(source, TFRecordInput)
            else source
            for source in inputs
        ]


def _describe_difference(old_header: dict[str, Any], new_header: dict[str, Any]) -> str:
    """Describe the first difference between two conversions."""
    for name in ("writer_options", "ranges", "outputs"):
        if old_header.get(name) != new_header[name]:
            return (
                f"this output was begun with other options: {name} was"
                f" {_shorten(old_header.get(name))}, now it is"
                f" {_shorten(new_header[name])}"
            )
    old_inputs, new_inputs = old_header.get("inputs", []), new_header["inputs"]
    if len(old_inputs) != len(new_inputs):
        return (
            f"this output was begun with {len(old_inputs)} inputs, now there are"
            f" {len(new_inputs)}"
        )
    for old, new in zip(old_inputs, new_inputs, strict=True):
        for name in new:
            if old.get(name) != new[name]:
                return (
                    f"input {new['path']} has changed: {name} was"
                    f" {old.get(name)}, now it is {new[name]}"
                )
    return "this output was begun by a different command"


def _shorten(value: Any) -> str:
    """Format a value of a journal's header; only the first item of a list."""
    if isinstance(value, list) and len(value) > 1:
        return f"{value[0]} and {len(value) - 1} more"
    return str(value[0]) if isinstance(value, list) else repr(value)


def _count_records(source: Input) -> Iterator[int]:
    yield source.count()


def _write_shards(task: _Task) -> Iterator[tuple[int, int | WrittenFile]]:
    """Write the shards of a task, reading adjacent ranges in one pass.

    Yields:
        The number of a shard, and a report of `write_file`.
    """
    records: Iterator[bytes] = iter(())
    position = -1  # The number of the record that `records` yields next.
    for shard in task.shards:
        if shard.begin != position:
            records = _read_records(task.inputs, task.counts, shard.begin)
        shard_records = itertools.islice(records, shard.end - shard.begin)
        for report in write_file(shard_records, shard.path, task.options):
            yield shard.number, report
        position = shard.end


def _read_records(
    inputs: Sequence[Input], counts: Sequence[int], first: int
) -> Iterator[bytes]:
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
