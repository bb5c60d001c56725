"""Converts inputs to a set of ArrayRecord files. Interrupted conversions can resume.

The records of all inputs, in order, are split into one contiguous range for each shard.
The shards, in the order of their names, therefore contain the records in the order of
the inputs, for any number of processes.  A shard is written to a hidden file, read
back, and recorded in the journal.  When all shards are finished, they are renamed.
`tokenization.py` builds on this.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from gristmill._base.progress_bar import Progress
from gristmill._convert import worker_pool
from gristmill._convert.errors import ConversionError, from_os_error
from gristmill._convert.inputs import Input
from gristmill._convert.journal import Journal
from gristmill._convert.paths import Output, part_of
from gristmill._convert.shards import Advance, ShardWriter, WrittenFile
from gristmill._convert.unit_writer import Task, Unit, UnitWriter, write_units

# The number of tasks for each process, so that all processes end at about the same
# time. It is 1 if a task must read the records before its own first.
TASKS_PER_PROCESS = 4


Ranges = Literal["even", "inputs"]


def convert(
    inputs: Sequence[Input],
    output: Output,
    writer_options: str,
    *,
    ranges: Ranges,
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
    make_folder(output)
    header = header_of(inputs, output, writer_options, ranges)
    writer = ShardWriter(writer_options)
    with contextlib.closing(Journal(output.journal, {"shard": WrittenFile})) as journal:
        conversion = Conversion(
            inputs, output, header, writer, processes, progress, journal
        )
        written_count = conversion.run(restart)
        return list(conversion.finished.values()), written_count


def make_folder(output: Output) -> None:
    """Create the folder of an output if it does not exist."""
    folder = os.path.dirname(output.stem) or "."
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise from_os_error(error, folder) from error


def header_of(
    inputs: Sequence[Input], output: Output, writer_options: Any, ranges: Ranges
) -> dict[str, Any]:
    """Return the header of a journal: JSON values that determine the output."""
    return {
        "inputs": [_identity_of(source) for source in inputs],
        "outputs": [os.path.basename(path) for path in output.finals()],
        "writer_options": writer_options,
        "ranges": ranges,
    }


@dataclasses.dataclass(frozen=True)
class Conversion:
    """A conversion whose journal is open.

    It writes files, here one for each shard, and renames them at the end.
    """

    inputs: Sequence[Input]
    output: Output
    header: dict[str, Any]
    writer: UnitWriter
    processes: int
    progress: Progress
    journal: Journal
    unit_kind: ClassVar[str] = "shard"  # The name of a unit in the journal.
    noun: ClassVar[str] = "records"

    def run(self, restart: bool) -> int:
        """Write what is not finished, and return the number of units written."""
        if restart:
            self.remove_earlier_files()
        self.begin()
        written_count = self.write_pending()
        self.finish()
        return written_count

    @property
    def finished(self) -> dict[int, Any]:
        """The descriptions of the finished units, by number."""
        return self.journal.finished[self.unit_kind]

    def remove_earlier_files(self) -> None:
        """Remove the files of an earlier conversion, and existing output files."""
        paths = [*self._earlier_output_paths(), *self.output.finals()]
        self.remove([*paths, *map(part_of, paths)])
        self.journal.clear()

    def begin(self) -> None:
        """Start the journal, or check that it belongs to this conversion."""
        journal = self.journal
        if journal.header == self.header:
            return
        if any(journal.finished.values()):
            difference = _describe_difference(journal.header or {}, self.header)
            raise ConversionError(
                f"{journal.path}: {difference}. Run the earlier command to resume it,"
                " or pass --restart to remove its files and start again."
            )
        self.remove([*map(part_of, self._earlier_output_paths())])
        for path in self.output.finals():
            if os.path.lexists(path):
                self.remove([journal.path])  # It has no finished shards.
                raise ConversionError(
                    f"{path} exists already, and this conversion did not make it."
                    " Choose another OUT, or pass --restart to replace it."
                )
        journal.begin(self.header)

    def write_pending(self) -> int:
        """Write the units that are not finished, and return their number."""
        pending = [
            number
            for number in range(self.unit_count())
            if not self.is_finished(number)
        ]
        if pending:
            with _with_shared_indices(self.inputs) as inputs:
                if self.journal.counts is None:
                    self._count(inputs)
                self._write(self._plan(inputs, pending))
        return len(pending)

    def unit_count(self) -> int:
        """Return the number of units."""
        return self.output.count

    def written_tokens(self) -> int:
        """Return the number of tokens in finished units."""
        return 0

    def unit_path(self, number: int) -> str:
        """Return the path that a unit is written to."""
        return self.output.part(number)

    def unit_bounds(self) -> list[int]:
        """Return the number of the first record of each unit, and the total."""
        return self.shard_bounds()

    def shard_bounds(self) -> list[int]:
        """Return the number of the first record of each shard, and the total."""
        counts = self.journal.counts or []
        if self.header["ranges"] == "inputs":
            return list(itertools.accumulate(counts, initial=0))
        total, count = sum(counts), self.output.count
        return [number * total // count for number in range(count + 1)]

    def is_finished(self, number: int) -> bool:
        """Return whether a unit is in the journal, and its file has the right size."""
        shard = self.finished.get(number)
        if shard is None:
            return False
        for path in (self.output.part(number), self.output.final(number)):
            with contextlib.suppress(FileNotFoundError):
                return bool(os.path.getsize(path) == shard.file_bytes)
        return False

    def finish(self) -> None:
        """Rename the files, unless an input has changed during the conversion."""
        for source, identity in zip(self.inputs, self.header["inputs"], strict=True):
            if _identity_of(source) != identity:
                raise ConversionError(
                    f"{source.path} was changed while it was converted. Run the command"
                    " again with --restart when the file no longer changes."
                )
        try:
            for path in self.output.finals():
                with contextlib.suppress(FileNotFoundError):  # Already renamed.
                    os.replace(part_of(path), path)
            folder = os.open(os.path.dirname(self.output.stem) or ".", os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise from_os_error(error, self.output.stem) from error

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

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files that exist, unless one of them is an input."""
        for path in paths:
            if os.path.realpath(path) in self._input_paths:
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

    @functools.cached_property
    def _input_paths(self) -> set[str]:
        """The paths of the inputs without links."""
        return {os.path.realpath(source.path) for source in self.inputs}

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

    def _plan(self, inputs: Sequence[Input], pending: Sequence[int]) -> list[Task]:
        """Return the tasks that write the pending units."""
        counts, processes = self.journal.counts or [], self.processes
        one_per_input = self.header["ranges"] == "inputs" and self.unit_count() == len(
            inputs
        )
        if one_per_input or all(source.can_seek() for source in inputs):
            processes *= TASKS_PER_PROCESS
        units_per_task = max(1, len(pending) // processes)
        bounds = self.unit_bounds()
        units = [
            Unit(number, bounds[number], bounds[number + 1], self.unit_path(number))
            for number in pending
        ]
        return [
            Task(inputs, counts, units[first : first + units_per_task], self.writer)
            for first in range(0, len(units), units_per_task)
        ]

    def _write(self, tasks: Sequence[Task]) -> None:
        """Write the units of all tasks, and store each finished one in the journal."""
        total = sum(self.journal.counts or [])
        pending = sum(unit.end - unit.begin for task in tasks for unit in task.units)
        tokens = self.written_tokens()
        self.progress.begin(self.noun, total, total - pending, tokens)
        reports = worker_pool.run(write_units, tasks, self.processes)
        with contextlib.closing(reports):
            for _, (number, report) in reports:
                if isinstance(report, Advance):
                    self.progress.advance(*report)
                else:
                    self.journal.add(self.unit_kind, number, report)


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
    """Share the indices of files that must be scanned among all processes."""
    with tempfile.TemporaryDirectory(prefix="gristmill-convert-") as folder:
        yield [source.with_index_dir(folder) for source in inputs]


def _describe_difference(old_header: dict[str, Any], new_header: dict[str, Any]) -> str:
    """Describe the first difference between two conversions."""
    for name in ("writer_options", "ranges", "outputs"):
        old_value, new_value = old_header.get(name), new_header[name]
        if old_value == new_value:
            continue
        if isinstance(old_value, dict) and isinstance(new_value, dict):
            name = next(
                key for key in new_value if old_value.get(key) != new_value[key]
            )
            old_value, new_value = old_value.get(name), new_value[name]
        return (
            f"this output was begun with other options: {name} was"
            f" {_shorten(old_value)}, now it is {_shorten(new_value)}"
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
    if not isinstance(value, list) or not value:
        return repr(value)
    return str(value[0]) + (f" and {len(value) - 1} more" if len(value) > 1 else "")


def _count_records(source: Input) -> Iterator[int]:
    yield source.count()
